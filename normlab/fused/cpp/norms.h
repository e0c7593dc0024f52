// Norms of the rows of a tile, forward and backward. R rows, D width; rows are padded, and what lies behind D in them
// is never counted. A norm is g u + b of the unit vector
//
//     layernorm  u = (x - mean(x)) / sqrt(var(x) + eps)        rmsnorm  u = x / sqrt(mean(x^2) + eps), b = 0
//     dyt        u = tanh(alpha x)
//
// Rows of float32 whose statistics overflow, vanish or lose their digits are computed in float64, as in
// normlab/model/norms/whole_range.py, forward and backward.
#pragma once
#include "simd.h"

enum NormKind : int64_t { NONE, LAYERNORM, RMSNORM, DYT };

template <class Real, class Each> INLINE Real sum_over(Size D, Each each) {
    Vec<Real> even{}, odd{};
    for (Size j = 0; j < D; j += PANEL<Real>) {
        even += within<Real>(each(j), j, D);
        odd += within<Real>(each(j + LANES<Real>), j + LANES<Real>, D);
    }
    return sum<Real>(even + odd);
}

template <class Real, class Each> INLINE void over(Size D, Each each) {
    for (Size j = 0; j < padded<Real>(D); j += LANES<Real>) each(j);
}

// A row vector with zeros behind its entries, or all `otherwise`.
template <class Real> const Real* widened(Real* to, const Real* from, Size width, Real otherwise = 0) {
    for (Size j = 0; j < padded<Real>(width); ++j) to[j] = j >= width ? 0 : from ? from[j] : otherwise;
    return to;
}

// A padded matrix without its padding.
template <class Real> void narrowed(Real* to, const Real* from, Size rows, Size width) {
    for (Size r = 0; r < rows; ++r) std::memcpy(to + r * width, from + r * row_size<Real>(width), width * sizeof(Real));
}

// Gain, bias and slope with rows padded, and the sums of their gradients.
template <class Real> struct Norm {
    NormKind kind;
    Size D;
    double eps;
    const Real *gain_D, *bias_D;
    Real alpha;
    // Three padded rows: the gradients of gain, bias and slope, the last in as many parts as a row has entries; and the
    // same of the tile at hand: one long sum of like terms would lose digits.
    Real *sums, *part;

    // The gradients, where there are such leaves; `leaf` as in `made_norm`.
    void write(Real* grads, const Size* leaf) const {
        const Size P = padded<Real>(D);
        if (leaf[0] >= 0) narrowed(grads + leaf[0], sums, 1, D);
        if (leaf[1] >= 0) narrowed(grads + leaf[1], sums + P, 1, D);
        if (leaf[2] >= 0) grads[leaf[2]] = sum_over<Real>(D, [&](Size j) { return load(sums + 2 * P + j); });
    }
};

// A norm whose gain, bias and slope lie at the offsets `leaf` of a lane's parameters (-1: it has none). `rows` takes
// two padded rows, `sums` six.
template <class Real>
Norm<Real> made_norm(NormKind kind, Size D, double eps, const Real* params, const Size* leaf, Real* rows, Real* sums) {
    const Size P = padded<Real>(D);
    auto at = [&](int k) -> const Real* { return leaf[k] < 0 ? nullptr : params + leaf[k]; };
    const Real* gain_D = widened(rows, at(0), D, Real(1));
    const Real* bias_D = widened(rows + P, at(1), D);
    return {kind, D, eps, gain_D, bias_D, at(2) ? *at(2) : Real(1), sums, sums + 3 * P};
}

// What the backward pass needs of a row. A row in float64 is marked by scale -1.
template <class Real> struct Statistics {
    Real mean, scale;
};

// Whether statistics in float32 are right: within 2^40 of 1, and the mean not 2^10 deviations or more.
INLINE bool right(float mean, float scale) {
    const float offset = mean * scale;
    return scale > 0x1p-40f && scale < 0x1p40f && offset > -0x1p10f && offset < 0x1p10f;
}

template <class Real> bool finite(Size D, const Real* x_D) {
    Real zero = 0;
    for (Size j = 0; j < D; ++j) zero += x_D[j] * 0;
    return zero == 0;
}

// Mean and 1 / sqrt(. + eps) of a row, in float64.
template <class Real> Statistics<double> wide(const Norm<Real>& norm, const Real* x_D) {
    double mean = 0, square = 0;
    if (norm.kind == LAYERNORM) {
        for (Size j = 0; j < norm.D; ++j) mean += x_D[j];
        mean /= norm.D;
    }
    for (Size j = 0; j < norm.D; ++j) square += (x_D[j] - mean) * (x_D[j] - mean);
    return {mean, 1 / std::sqrt(square / norm.D + norm.eps)};
}

template <class Real> INLINE Statistics<Real> statistics(const Norm<Real>& norm, const Real* x_D) {
    const Size D = norm.D;
    const Real mean = norm.kind == LAYERNORM ? sum_over<Real>(D, [&](Size j) { return load(x_D + j); }) / D : 0;
    const Real square = sum_over<Real>(D, [&](Size j) {
        Vec<Real> c = load(x_D + j) - mean;
        return c * c;
    });
    const Real scale = 1 / std::sqrt(square / D + Real(norm.eps));
    // Nothing is wider than float64: beyond 1e154 a layernorm is NaN, as torch's.
    if constexpr (sizeof(Real) == 8)
        return {mean, scale == 0 && norm.kind == LAYERNORM ? Real(NAN) : scale};
    else
        return {mean, __builtin_expect(right(mean, scale), 1) || !finite(D, x_D) ? scale : Real(-1)};
}

// n = g u + b
template <class Real>
void norm_forward(const Norm<Real>& norm, Size R, Size ld, const Real* x_RD, Real* n_RD, Statistics<Real>* kept_R) {
    for (Size r = 0; r < R; ++r) {
        const Real* x = x_RD + r * ld;
        Real* n = n_RD + r * ld;
        auto affine = [&](Size j, Vec<Real> u) { store(n + j, u * load(norm.gain_D + j) + load(norm.bias_D + j)); };
        if (norm.kind == DYT) {
            over<Real>(norm.D, [&](Size j) { affine(j, hyperbolic_tangent(norm.alpha * load(x + j))); });
            continue;
        }
        const Statistics<Real> s = kept_R[r] = statistics(norm, x);
        if (s.scale == -1) {
            const Statistics<double> w = wide(norm, x);
            for (Size j = 0; j < norm.D; ++j) n[j] = Real((x[j] - w.mean) * w.scale) * norm.gain_D[j] + norm.bias_D[j];
        } else
            over<Real>(norm.D, [&](Size j) { affine(j, (load(x + j) - s.mean) * s.scale); });
    }
}

// dx = du through the unit vector, for a row in float64; n as in the forward pass.
template <class Real>
void wide_backward(const Norm<Real>& norm, const Real* x, const Real* dn, Real* n, Real* dx, const Real* plus) {
    const Statistics<double> w = wide(norm, x);
    double mean = 0, along = 0;
    Real *dgain_D = norm.part, *dbias_D = dgain_D + padded<Real>(norm.D);
    auto unit = [&](Size j) { return (x[j] - w.mean) * w.scale; };
    auto du = [&](Size j) { return double(dn[j] * norm.gain_D[j]); };
    for (Size j = 0; j < norm.D; ++j) mean += du(j), along += du(j) * unit(j);
    mean = norm.kind == LAYERNORM ? mean / norm.D : 0, along /= norm.D;
    for (Size j = 0; j < norm.D; ++j) {
        const Real u = Real(unit(j)), d = Real(w.scale * (du(j) - mean - unit(j) * along));
        dgain_D[j] += dn[j] * u, dbias_D[j] += dn[j];
        n[j] = u * norm.gain_D[j] + norm.bias_D[j];
        dx[j] = plus ? plus[j] + d : d;
    }
}

// dx = scale (du - mean(du) - u mean(du u)), du = g dn; plus `plus` if there is one. n is computed again.
template <class Real>
void norm_backward(const Norm<Real>& norm, Size R, Size ld, const Real* x_RD, const Statistics<Real>* kept_R,
                   const Real* dn_RD, Real* n_RD, Real* dx_RD, const Real* plus_RD) {
    typedef Vec<Real> V;
    const Size D = norm.D, P = padded<Real>(D);
    Real *dgain_D = norm.part, *dbias_D = dgain_D + P, *dalpha_D = dbias_D + P;
    std::memset(norm.part, 0, 3 * P * sizeof(Real));
    for (Size r = 0; r < R; ++r) {
        const Real *x = x_RD + r * ld, *dn = dn_RD + r * ld, *plus = plus_RD ? plus_RD + r * ld : nullptr;
        Real *n = n_RD + r * ld, *dx = dx_RD + r * ld;
        auto leave = [&](Size j, V u, V d) {
            const V dn_j = load(dn + j);
            store(dgain_D + j, load(dgain_D + j) + dn_j * u);
            store(dbias_D + j, load(dbias_D + j) + dn_j);
            store(n + j, u * load(norm.gain_D + j) + load(norm.bias_D + j));
            store(dx + j, plus ? d + load(plus + j) : d);
        };
        if (norm.kind == DYT) {
            over<Real>(D, [&](Size j) {
                const V x_j = load(x + j), u = hyperbolic_tangent(norm.alpha * x_j);
                const V inner = load(dn + j) * load(norm.gain_D + j) * (1 - u * u);
                store(dalpha_D + j, load(dalpha_D + j) + inner * x_j);
                leave(j, u, norm.alpha * inner);
            });
            continue;
        }
        const Statistics<Real> s = kept_R[r];
        if (s.scale == -1) {
            wide_backward(norm, x, dn, n, dx, plus);
            continue;
        }
        // In memory, as rounded: so du - mean(du) is 0 where it should be.
        over<Real>(D, [&](Size j) { store(n + j, load(dn + j) * load(norm.gain_D + j)); });
        auto du = [&](Size j) -> V { return load(n + j); };
        auto unit = [&](Size j) -> V { return (load(x + j) - s.mean) * s.scale; };
        const Real mean = norm.kind == LAYERNORM ? sum_over<Real>(D, du) / D : 0;
        const Real along = sum_over<Real>(D, [&](Size j) { return du(j) * unit(j); }) / D;
        over<Real>(D, [&](Size j) {
            const V u = unit(j);
            leave(j, u, s.scale * (du(j) - mean - u * along));
        });
    }
    for (Size j = 0; j < 3 * P; j += LANES<Real>) store(norm.sums + j, load(norm.sums + j) + load(norm.part + j));
}
