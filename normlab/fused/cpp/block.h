// A block of the toy decoder for one lane, forward and backward, tile by tile.
//
// B batch, T time, N = B T tokens, R rows of a tile (tokens), D width, F hidden. `d` before a name: the gradient of the
// loss. Rows are padded to `row_size`; nothing is allocated here.
//
//     pre    x' = x + r f(norm(x))        post   x' = norm(x + r f(x))        r: the residual ramp, 1 without one
//     f      mixer: mean(n) W + b or n W + b, then feed-forward: gelu(n W1 + b1) W2 + b2
#pragma once
#include "frame.h"

template <class Real> class Block {
  public:
    Block(Arena<Real>& arena, const Frame& frame)
        : f(frame), ld_D(row_size<Real>(f.D)), ld_F(row_size<Real>(f.F)), P_D(padded<Real>(f.D)),
          P_F(padded<Real>(f.F)) {
        w_DD = arena.take(f.D * P_D), w_DF = arena.take(f.D * P_F), w_FD = arena.take(f.F * P_D);
        dw_DD = arena.take(f.D * ld_D), dw_DF = arena.take(f.D * ld_F), dw_FD = arena.take(f.F * ld_D);
        rows = arena.take(6 * P_D + P_F);
        sums = arena.take(14 * P_D + P_F);
        state_D = arena.take(P_D);
        n_RD = arena.take(TILE * ld_D), m_RD = arena.take(TILE * ld_D), e_RD = arena.take(TILE * ld_D);
        da_RF = arena.take(TILE * ld_F), dh_RF = arena.take(TILE * ld_F);
    }

    Real* const* watch[2] = {nullptr, nullptr};  // of this block

    // x' of all tokens; `out_ND` may be `x_ND`. Without `all` the tiles share one part of `kept`.
    void forward(const Real* params, const Size* leaf, Real ramp, const Real* x_ND, Real* out_ND,
                 const Kept<Real>& kept, bool all) {
        read(params, leaf);
        const Panels<Real> w = packed<false>(w_DD, params + leaf[W], f.D, f.D);
        const Panels<Real> w_in = packed<false>(w_DF, params + leaf[W_IN], f.D, f.F);
        const Panels<Real> w_out = packed<false>(w_FD, params + leaf[W_OUT], f.F, f.D);
        for (Size at = 0; at < f.N; at += TILE) {
            const Size R = f.N - at < TILE ? f.N - at : TILE;
            const Kept<Real> k = kept.from(all ? at : 0, ld_D, ld_F);
            const Real *x_RD = x_ND + at * ld_D, *n;

            n = f.post() ? x_RD : normed(norm1, R, x_RD, k.stats1_N);
            see(0, NORM1, f.post() ? nullptr : n, at, R, f.D, ld_D);
            if (f.mixer == MEAN) n = running_mean(at, R, n);
            see(0, MIXED, n, at, R, f.D, ld_D);
            add(R, f.D, n, ld_D, w, bias_D, ramp, x_RD, f.post() ? k.sum1_ND : k.mid_ND, MIXER, at);
            see(0, SUM1, f.post() ? k.sum1_ND : k.mid_ND, at, R, f.D, ld_D);
            if (f.post()) norm_forward(norm1, R, ld_D, k.sum1_ND, k.mid_ND, k.stats1_N);
            see(0, NORM1, f.post() ? k.mid_ND : nullptr, at, R, f.D, ld_D);

            n = f.post() ? k.mid_ND : normed(norm2, R, k.mid_ND, k.stats2_N);
            see(0, NORM2, f.post() ? nullptr : n, at, R, f.D, ld_D);
            Ending<Real> inner{k.h_NF, ld_F, b_in_F};
            product<false>(R, P_F, f.D, n, ld_D, w_in, inner);
            see(0, INNER, k.h_NF, at, R, f.F, ld_F);
            activate(R, k.h_NF, k.slope_NF);
            see(0, GELU, k.h_NF, at, R, f.F, ld_F);
            Real* out_RD = out_ND + at * ld_D;
            add(R, f.F, k.h_NF, ld_F, w_out, b_out_D, ramp, k.mid_ND, f.post() ? k.sum2_ND : out_RD, FFN, at);
            see(0, SUM2, f.post() ? k.sum2_ND : out_RD, at, R, f.D, ld_D);
            if (f.post()) norm_forward(norm2, R, ld_D, k.sum2_ND, out_RD, k.stats2_N);
            see(0, NORM2, f.post() ? out_RD : nullptr, at, R, f.D, ld_D);
        }
    }

    // dx in the place of dx' (N, D), and the gradient of every leaf into `grads`. The last tile first: what a token
    // gives to later ones comes back from them.
    void backward(const Real* params, const Size* leaf, Real ramp, const Real* x_ND, Real* dx_ND,
                  const Kept<Real>& kept, Real* grads) {
        read(params, leaf);
        const Panels<Real> w = packed<true>(w_DD, params + leaf[W], f.D, f.D);
        const Panels<Real> w_in = packed<true>(w_FD, params + leaf[W_IN], f.F, f.D);
        const Panels<Real> w_out = packed<true>(w_DF, params + leaf[W_OUT], f.D, f.F);
        clear();
        for (Size at = (f.N - 1) / TILE * TILE; at >= 0; at -= TILE) {
            const Size R = f.N - at < TILE ? f.N - at : TILE;
            const Kept<Real> k = kept.from(at, ld_D, ld_F);
            const Real *x_RD = x_ND + at * ld_D, *n, *e;
            Real* dx_RD = dx_ND + at * ld_D;  // dx', then d mid, then dx

            see(1, NORM2, f.post() ? dx_RD : nullptr, at, R, f.D, ld_D);
            if (f.post()) norm_backward<Real>(norm2, R, ld_D, k.sum2_ND, k.stats2_N, dx_RD, n_RD, dx_RD, nullptr);
            see(1, SUM2, dx_RD, at, R, f.D, ld_D);
            e = ramp == 1 ? dx_RD : scaled(R, dx_RD, ramp);
            see(1, FFN, e, at, R, f.D, ld_D);
            add_columns(R, f.D, e, ld_D, db_out_D);
            add_turned(f.F, f.D, R, k.h_NF, ld_F, e, ld_D, dw_FD);
            Ending<Real> through{da_RF, ld_F};
            through.times = k.slope_NF, through.ld_times = ld_F;
            if (watch[1]) through.copy = dh_RF, through.ld_copy = ld_F;
            product<false>(R, P_F, f.D, e, ld_D, w_out, through);
            see(1, GELU, dh_RF, at, R, f.F, ld_F);
            see(1, INNER, da_RF, at, R, f.F, ld_F);
            add_columns(R, f.F, da_RF, ld_F, db_in_F);
            n = back(norm2, R, f.F, da_RF, ld_F, w_in, k.mid_ND, k.stats2_N, dx_RD, NORM2, at);
            add_turned(f.D, f.F, R, n, ld_D, da_RF, ld_F, dw_DF);

            see(1, NORM1, f.post() ? dx_RD : nullptr, at, R, f.D, ld_D);
            if (f.post()) norm_backward<Real>(norm1, R, ld_D, k.sum1_ND, k.stats1_N, dx_RD, n_RD, dx_RD, nullptr);
            see(1, SUM1, dx_RD, at, R, f.D, ld_D);
            e = scaled(R, dx_RD, ramp);  // A copy: dx' becomes dx before e is done with.
            see(1, MIXER, e, at, R, f.D, ld_D);
            add_columns(R, f.D, e, ld_D, dbias_D);
            if (watch[1]) product<false>(R, P_D, f.D, e, ld_D, w, Ending<Real>{m_RD, ld_D});
            see(1, MIXED, m_RD, at, R, f.D, ld_D);
            // mean(n) W has the gradient n^T e and e W^T, where e is dy summed back over time.
            if (f.mixer == MEAN) e = running_mean_back(at, R, e);
            n = back(norm1, R, f.D, e, ld_D, w, x_RD, k.stats1_N, dx_RD, NORM1, at);
            add_turned(f.D, f.D, R, n, ld_D, e, ld_D, dw_DD);
        }
        write(grads, leaf);
    }

  private:
    const Frame& f;
    const Size ld_D, ld_F, P_D, P_F;
    Real *w_DD, *w_DF, *w_FD, *dw_DD, *dw_DF, *dw_FD, *rows, *sums, *state_D, *n_RD, *m_RD, *e_RD, *da_RF, *dh_RF;
    const Real *bias_D, *b_in_F, *b_out_D;
    Real *dbias_D, *db_in_F, *db_out_D;
    Norm<Real> norm1, norm2;

    void read(const Real* params, const Size* leaf) {
        Real *row = rows, *sum = sums;
        bias_D = widened(row, params + leaf[BIAS], f.D), row += P_D;
        b_out_D = widened(row, params + leaf[B_OUT], f.D), row += P_D;
        norm1 = made_norm(f.norm, f.D, f.eps, params, leaf + GAIN1, row, sum), row += 2 * P_D, sum += 6 * P_D;
        norm2 = made_norm(f.norm, f.D, f.eps, params, leaf + GAIN2, row, sum), row += 2 * P_D, sum += 6 * P_D;
        b_in_F = widened(row, params + leaf[B_IN], f.F);
        dbias_D = sum, db_out_D = sum + P_D, db_in_F = sum + 2 * P_D;
    }

    void clear() {
        std::memset(dw_DD, 0, f.D * ld_D * sizeof(Real));
        std::memset(dw_DF, 0, f.D * ld_F * sizeof(Real));
        std::memset(dw_FD, 0, f.F * ld_D * sizeof(Real));
        std::memset(sums, 0, (14 * P_D + P_F) * sizeof(Real));
    }

    void write(Real* grads, const Size* leaf) const {
        norm1.write(grads, leaf + GAIN1), norm2.write(grads, leaf + GAIN2);
        narrowed(grads + leaf[W], dw_DD, f.D, f.D), narrowed(grads + leaf[BIAS], dbias_D, 1, f.D);
        narrowed(grads + leaf[W_IN], dw_DF, f.D, f.F), narrowed(grads + leaf[B_IN], db_in_F, 1, f.F);
        narrowed(grads + leaf[W_OUT], dw_FD, f.F, f.D), narrowed(grads + leaf[B_OUT], db_out_D, 1, f.D);
    }

    void see(int which, Edge edge, const Real* tile, Size at, Size R, Size width, Size ld) const {
        if (!watch[which] || !tile) return;
        Real* to = watch[which][edge] + at * width;
        for (Size r = 0; r < R; ++r) std::memcpy(to + r * width, tile + r * ld, width * sizeof(Real));
    }

    const Real* normed(const Norm<Real>& norm, Size R, const Real* x_RD, Statistics<Real>* stats_R) {
        if (norm.kind == NONE) return x_RD;
        norm_forward(norm, R, ld_D, x_RD, n_RD, stats_R);
        return n_RD;
    }

    // to = x + ramp (n W + b)
    void add(Size R, Size inner, const Real* n, Size ld, Panels<Real> w, const Real* bias, Real ramp, const Real* x_RD,
             Real* to, Edge edge, Size at) {
        Ending<Real> e{to, ld_D, bias};
        e.plus = x_RD, e.ld_plus = ld_D, e.scale = ramp;
        if (watch[0]) e.copy = e_RD, e.ld_copy = ld_D;
        product<false>(R, P_D, inner, n, ld, w, e);
        see(0, edge, e_RD, at, R, f.D, ld_D);
    }

    // dW += n^T dy
    void add_turned(Size rows, Size cols, Size R, const Real* n, Size ld_n, const Real* dy, Size ld, Real* dw) {
        Ending<Real> e{dw, ld};
        e.plus = dw, e.ld_plus = ld;
        product<true>(rows, padded<Real>(cols), R, n, ld_n, as_it_lies(dy, ld), e);
    }

    // dx = dx' + d norm(x), where the norm's output has the gradient dy W^T; gives the norm's output.
    const Real* back(const Norm<Real>& norm, Size R, Size inner, const Real* dy, Size ld, Panels<Real> w,
                     const Real* x_RD, const Statistics<Real>* stats_R, Real* dx_RD, Edge edge, Size at) {
        const bool direct = f.post() || norm.kind == NONE;
        Ending<Real> e{direct ? dx_RD : m_RD, ld_D};
        if (direct) e.plus = dx_RD, e.ld_plus = ld_D;
        if (direct && watch[1]) e.copy = m_RD, e.ld_copy = ld_D;
        product<false>(R, P_D, inner, dy, ld, w, e);
        if (!f.post()) see(1, edge, m_RD, at, R, f.D, ld_D);
        if (direct) return x_RD;
        norm_backward<Real>(norm, R, ld_D, x_RD, stats_R, m_RD, n_RD, dx_RD, dx_RD);
        return n_RD;
    }

    const Real* scaled(Size R, const Real* x_RD, Real ramp) {
        for (Size k = 0; k < R * ld_D; k += LANES<Real>) store(e_RD + k, load(x_RD + k) * ramp);
        return e_RD;
    }

    void activate(Size R, Real* h_RF, Real* slope_RF) {
        for (Size r = 0; r < R; ++r)
            for (Size j = 0; j < P_F; j += LANES<Real>) {
                Vec<Real> value, slope;
                gelu(load(h_RF + r * ld_F + j), value, slope);
                store(h_RF + r * ld_F + j, value), store(slope_RF + r * ld_F + j, slope);
            }
    }

    // m_t = m_{t-1} + (n_t - m_{t-1}) / (t + 1), the mean of n_0 .. n_t; it never grows beyond its terms.
    const Real* running_mean(Size at, Size R, const Real* n_RD) {
        const Real* before = state_D;
        for (Size r = 0; r < R; ++r) {
            const Size t = (at + r) % f.T;
            const Real share = Real(1) / Real(t + 1);
            const Real* n = n_RD + r * ld_D;
            Real* m = m_RD + r * ld_D;
            over<Real>(f.D, [&](Size j) {
                const Vec<Real> own = load(n + j), mean = load(before + j);
                store(m + j, t ? mean + share * (own - mean) : own);
            });
            before = m;
        }
        std::memcpy(state_D, before, P_D * sizeof(Real));
        return m_RD;
    }

    // e_t = dm_t / (t + 1) + e_{t+1}
    const Real* running_mean_back(Size at, Size R, const Real* dm_RD) {
        const Real* behind = state_D;
        for (Size r = R - 1; r >= 0; --r) {
            const Size t = (at + r) % f.T;
            const Real share = Real(1) / Real(t + 1);
            const bool last = t == f.T - 1;
            Real* e = e_RD + r * ld_D;
            over<Real>(f.D, [&](Size j) {
                const Vec<Real> own = share * load(dm_RD + r * ld_D + j);
                store(e + j, last ? own : own + load(behind + j));
            });
            behind = e;
        }
        std::memcpy(state_D, behind, P_D * sizeof(Real));
        return e_RD;
    }
};
