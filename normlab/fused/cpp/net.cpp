// The training step of the toy decoder for S lanes, one after the other: embedding, blocks, final norm, head,
// cross-entropy, and back; and Adam. For ctypes; float32 and float64.
//
// S lanes, B batch, T time, N = B T tokens, D width, F hidden, V vocabulary, L blocks, P numbers in a lane's row.
// A lane never sees another, so its bits are the same alone and in company. Sums have a fixed order.
#include "adam.h"
#include "block.h"


extern "C" struct Shape {
    int64_t S, B, T, D, F, V, L, P;
    int64_t placement, mixer, norm, final_norm, last_only;
    double eps, final_eps;
};

// Leaves behind the blocks'.
enum Ends { FINAL_GAIN, FINAL_BIAS, FINAL_ALPHA, EMBEDDING, HEAD };
// What a watch sees beside the blocks' edges.
enum Outer { EMBEDDED, FINAL, LOGITS, OUTERS };

constexpr double SMALL = 0x1p-40;

template <class Real> class Net {
  public:
    Net(const Shape& shape, bool training, Real* workspace)
        : s(shape), N(s.B * s.T), f{s.T, N, s.D, s.F, Placement(s.placement), Mixer(s.mixer), NormKind(s.norm), s.eps},
          ld_D(row_size<Real>(s.D)), ld_V(row_size<Real>(s.V)), arena{workspace}, block(arena, f) {
        const Size P_D = padded<Real>(s.D), P_V = padded<Real>(s.V);
        rows = arena.take(2 * P_D), sums = arena.take(6 * P_D);
        head_DV = arena.take(s.D * P_V), head_VD = arena.take(s.V * P_D), dhead_DV = arena.take(s.D * ld_V);
        n_RD = arena.take(TILE * ld_D), dn_RD = arena.take(TILE * ld_D), y_RV = arena.take(TILE * ld_V);
        stats_R = reinterpret_cast<Statistics<Real>*>(arena.take(2 * TILE));
        dx_ND = arena.take(training ? N * ld_D : 0);
        x_LND = arena.take((training ? s.L + 1 : 1) * N * ld_D);
        first = Kept<Real>(arena, f, training ? N : TILE);
        // The parts of the later blocks follow in the same order.
        const Size begin = arena.used;
        if (training) Kept<Real>(arena, f, N);
        kept_size = arena.used - begin;
        arena.used = begin + (training ? (s.L - 1) * kept_size : 0);
    }

    Size size() const { return arena.used; }

    // The loss of one lane; `rms_L1`, if given, gets the largest RMS of a token in the stream by layer.
    Real evaluate(const Real* params, const Size* leaf, const Real* ramp_L, const int64_t* tokens, Real* rms_L1) {
        embed(params + ends(leaf)[EMBEDDING], tokens, x_LND);
        rms_L1[0] = largest_rms(x_LND);
        for (Size l = 0; l < s.L; ++l) {
            block.forward(params, leaf + l * LEAVES, ramp_L[l], x_LND, x_LND, first, false);
            rms_L1[l + 1] = largest_rms(x_LND);
        }
        return head(params, leaf, tokens, x_LND, nullptr);
    }

    // The loss of one lane and its gradient in a row of P numbers.
    Real gradient(const Real* params, const Size* leaf, const Real* ramp_L, const int64_t* tokens, Real* grads) {
        embed(params + ends(leaf)[EMBEDDING], tokens, x_LND);
        see(0, EMBEDDED, x_LND, 0, N, s.D, ld_D);
        for (Size l = 0; l < s.L; ++l) {
            look_at(l);
            block.forward(params, leaf + l * LEAVES, ramp_L[l], stream(l), stream(l + 1), kept(l), true);
        }
        const Real loss = head(params, leaf, tokens, stream(s.L), grads);
        for (Size l = s.L - 1; l >= 0; --l) {
            look_at(l);
            block.backward(params, leaf + l * LEAVES, ramp_L[l], stream(l), dx_ND, kept(l), grads);
        }
        see(1, EMBEDDED, dx_ND, 0, N, s.D, ld_D);
        Real* dweight_VD = grads + ends(leaf)[EMBEDDING];
        std::memset(dweight_VD, 0, s.V * s.D * sizeof(Real));
        for (Size n = 0; n < N; ++n) {
            Real* row = dweight_VD + token(tokens, n) * s.D;
            for (Size j = 0; j < s.D; ++j) row[j] += dx_ND[n * ld_D + j];
        }
        return loss;
    }

    // (L EDGES + OUTERS) pointers for values and as many for gradients, or null.
    Real* const* watch[2] = {nullptr, nullptr};

  private:
    const Shape& s;
    const Size N;
    const Frame f;
    const Size ld_D, ld_V;
    Arena<Real> arena;
    Block<Real> block;
    Real *rows, *sums, *head_DV, *head_VD, *dhead_DV, *n_RD, *dn_RD, *y_RV, *dx_ND, *x_LND;
    Statistics<Real>* stats_R;
    Kept<Real> first;
    Size kept_size;

    const Size* ends(const Size* leaf) const { return leaf + s.L * LEAVES; }
    Real* stream(Size l) const { return x_LND + l * N * ld_D; }
    Kept<Real> kept(Size l) const {
        Kept<Real> k = first;
        const Size by = l * kept_size;
        k.mid_ND += by, k.h_NF += by, k.slope_NF += by;
        k.stats1_N += by / 2, k.stats2_N += by / 2;
        if (k.sum1_ND) k.sum1_ND += by, k.sum2_ND += by;
        return k;
    }
    int64_t token(const int64_t* tokens, Size n) const { return tokens[n / s.T * (s.T + 1) + n % s.T]; }
    int64_t target(const int64_t* tokens, Size n) const { return tokens[n / s.T * (s.T + 1) + n % s.T + 1]; }

    void look_at(Size l) {
        for (int which = 0; which < 2; ++which) block.watch[which] = watch[which] ? watch[which] + l * EDGES : nullptr;
    }
    void see(int which, Outer outer, const Real* tile, Size at, Size R, Size width, Size ld) const {
        if (!watch[which]) return;
        Real* to = watch[which][s.L * EDGES + outer];
        for (Size r = 0; r < R; ++r) std::memcpy(to + (at + r) * width, tile + r * ld, width * sizeof(Real));
    }

    void embed(const Real* weight_VD, const int64_t* tokens, Real* to_ND) {
        for (Size n = 0; n < N; ++n) {
            Real* to = to_ND + n * ld_D;
            std::memcpy(to, weight_VD + token(tokens, n) * s.D, s.D * sizeof(Real));
            for (Size j = s.D; j < ld_D; ++j) to[j] = 0;
        }
    }

    // Final norm, head and mean cross-entropy of the stream x; with `grads` also their gradients, and dx.
    Real head(const Real* params, const Size* leaf, const int64_t* tokens, const Real* x_ND, Real* grads) {
        const Size P_D = padded<Real>(s.D), P_V = padded<Real>(s.V);
        const Size* end = ends(leaf);
        const Norm<Real> norm =
            made_norm(NormKind(s.final_norm), s.D, s.final_eps, params, end + FINAL_GAIN, rows, sums);
        const Panels<Real> w = packed<false>(head_DV, params + end[HEAD], s.D, s.V);
        Panels<Real> w_turned{};
        if (grads) {
            w_turned = packed<true>(head_VD, params + end[HEAD], s.V, s.D);
            std::memset(sums, 0, 6 * P_D * sizeof(Real));
            std::memset(dhead_DV, 0, s.D * ld_V * sizeof(Real));
        }
        double loss = 0;
        for (Size at = 0; at < N; at += TILE) {
            const Size R = N - at < TILE ? N - at : TILE;
            const Real *x_RD = x_ND + at * ld_D, *n = x_RD;
            if (norm.kind != NONE) norm_forward(norm, R, ld_D, x_RD, n_RD, stats_R), n = n_RD;
            see(0, FINAL, n, at, R, s.D, ld_D);
            product<false>(R, P_V, s.D, n, ld_D, w, Ending<Real>{y_RV, ld_V});
            see(0, LOGITS, y_RV, at, R, s.V, ld_V);
            for (Size r = 0; r < R; ++r) loss += cross_entropy(y_RV + r * ld_V, target(tokens, at + r), (at + r) % s.T);
            if (!grads) continue;
            see(1, LOGITS, y_RV, at, R, s.V, ld_V);
            Ending<Real> e{dhead_DV, ld_V};
            e.plus = dhead_DV, e.ld_plus = ld_V;
            product<true>(s.D, P_V, R, n, ld_D, as_it_lies(y_RV, ld_V), e);
            Real* dx_RD = dx_ND + at * ld_D;
            Real* dn = norm.kind == NONE ? dx_RD : dn_RD;
            product<false>(R, P_D, s.V, y_RV, ld_V, w_turned, Ending<Real>{dn, ld_D});
            see(1, FINAL, dn, at, R, s.D, ld_D);
            if (norm.kind != NONE) norm_backward<Real>(norm, R, ld_D, x_RD, stats_R, dn, n_RD, dx_RD, nullptr);
        }
        if (grads) {
            norm.write(grads, end + FINAL_GAIN);
            narrowed(grads + end[HEAD], dhead_DV, s.D, s.V);
        }
        return Real(loss / (s.last_only ? s.B : N));
    }

    // The loss of a token, and in place of its logits their gradient: softmax minus one at the target, over the count.
    Real cross_entropy(Real* y_V, int64_t target, Size t) {
        typedef Vec<Real> V;
        if (s.last_only && t != s.T - 1) {
            std::memset(y_V, 0, ld_V * sizeof(Real));
            return 0;
        }
        Real top = y_V[0];
        for (Size j = 1; j < s.V; ++j) top = y_V[j] > top ? y_V[j] : top;
        const Real own = y_V[target];
        over<Real>(s.V, [&](Size j) { store(y_V + j, exponential(V(load(y_V + j) - top))); });
        const Real total = sum_over<Real>(s.V, [&](Size j) { return load(y_V + j); });
        const Real weight = Real(1) / Real(s.last_only ? s.B : N), factor = weight / total;
        over<Real>(s.V, [&](Size j) { store(y_V + j, load(y_V + j) * factor); });
        y_V[target] -= weight;
        return std::log(total) - (own - top);
    }

    // The largest RMS of a token; a NaN stays. A row whose squares overflow or vanish is divided by about its largest
    // entry first, by a power of two, which changes no digit.
    Real largest_rms(const Real* x_ND) const {
        Real largest = 0;
        for (Size n = 0; n < N; ++n) {
            const Real* x = x_ND + n * ld_D;
            auto square = [&](Vec<Real> v) { return v * v; };
            auto rms_of = [&](Real by) {
                return std::sqrt(sum_over<Real>(s.D, [&](Size j) { return square(load(x + j) * by); }) / s.D);
            };
            Real rms = rms_of(1);
            if (!(rms >= Real(SMALL) && rms < Real(INFINITY))) {
                Real top = 0;
                for (Size j = 0; j < s.D; ++j) top = std::fabs(x[j]) > top ? std::fabs(x[j]) : top;
                const int bound = sizeof(Real) == 4 ? 100 : 1000;
                int exponent = 0;
                if (top < Real(INFINITY)) std::frexp(top, &exponent);
                exponent = exponent > bound ? bound : exponent < -bound ? -bound : exponent;
                rms = std::ldexp(rms_of(std::ldexp(Real(1), -exponent)), exponent);
            }
            if (largest == largest && !(rms <= largest)) largest = rms;
        }
        return largest;
    }
};

// Loss and gradient of every lane. `values` and `slopes`: see Net::watch.
template <class Real>
void gradients(const Shape& shape, const Size* leaf, const Real* params_SP, const Real* ramp_L,
               const int64_t* tokens_SBT, Real* loss_S, Real* grads_SP, Size grads_P, Real* workspace,
               Real* const* values, Real* const* slopes) {
    Net<Real> net(shape, true, workspace);
    net.watch[0] = values, net.watch[1] = slopes;
    const Size tokens = shape.B * (shape.T + 1);
    for (Size lane = 0; lane < shape.S; ++lane)
        loss_S[lane] = net.gradient(params_SP + lane * shape.P, leaf, ramp_L, tokens_SBT + lane * tokens,
                                    grads_SP + lane * grads_P);
}

// Loss of every lane on the same tokens, and the largest RMS of a token in the stream by layer.
template <class Real>
void evaluate(const Shape& shape, const Size* leaf, const Real* params_SP, const Real* ramp_L,
              const int64_t* tokens_BT, Real* loss_S, Real* rms_SL1, Real* workspace) {
    Net<Real> net(shape, false, workspace);
    for (Size lane = 0; lane < shape.S; ++lane)
        loss_S[lane] = net.evaluate(params_SP + lane * shape.P, leaf, ramp_L, tokens_BT,
                                    rms_SL1 + lane * (shape.L + 1));
}

#define ENTRIES(Real, kind)                                                                                      \
    extern "C" Size workspace_##kind(const Shape* shape, int training) {                                         \
        return Net<Real>(*shape, training, nullptr).size() * Size(sizeof(Real));                                 \
    }                                                                                                            \
    extern "C" void gradients_##kind(const Shape* shape, const Size* leaf, const Real* params, const Real* ramp, \
                                     const int64_t* tokens, Real* loss, Real* grads, Size grads_P,               \
                                     Real* workspace, Real* const* values, Real* const* slopes) {                \
        gradients(*shape, leaf, params, ramp, tokens, loss, grads, grads_P, workspace, values, slopes);          \
    }                                                                                                            \
    extern "C" void evaluate_##kind(const Shape* shape, const Size* leaf, const Real* params, const Real* ramp,  \
                                    const int64_t* tokens, Real* loss, Real* rms, Real* workspace) {             \
        evaluate(*shape, leaf, params, ramp, tokens, loss, rms, workspace);                                      \
    }                                                                                                            \
    extern "C" void adam_##kind(Size P, Real* p, const Real* g, Real* m, Real* v, const Adam* a) {               \
        adam(P, p, g, m, v, *a);                                                                                 \
    }

ENTRIES(float, f32)
ENTRIES(double, f64)
