// What follows a gradient: its size, and Adam's step. P numbers of one lane.
#pragma once
#include "simd.h"
#include <initializer_list>

// The norm of a gradient from float64 sums in a fixed order, and whether all its entries are finite.
template <class Real> bool size(Size P, const Real* g_P, double& norm) {
    constexpr Size PARTS = 16;
    double part[PARTS] = {};
    Real zero[PARTS] = {};  // 0 as long as everything is finite
    auto entries = [&](Size k, Size count) {
        for (Size i = 0; i < count; ++i) {
            const double g = g_P[k + i];
            part[i] += g * g, zero[i] += g_P[k + i] * Real(0);
        }
    };
    Size k = 0;
    for (; k + PARTS <= P; k += PARTS) entries(k, PARTS);
    entries(k, P - k);
    for (Size half = PARTS / 2; half; half /= 2)
        for (Size i = 0; i < half; ++i) part[i] += part[i + half], zero[i] += zero[i + half];
    norm = std::sqrt(part[0]);
    return zero[0] == 0;
}

// Adam: m += (1 - beta1)(g - m), v += (1 - beta2)(g^2 - v), p -= rate m / (sqrt(v) + eps). Rate and eps hold the bias
// corrections. decay adds decay p to g (L2); shrink, 1 for none, is the factor of decoupled decay on p.
// Gives whether all parameters are finite (bit 0) and all of v (bit 1).
struct Adam {
    double beta1, beta2, rate, eps, decay, shrink;
};

template <class Real> int adam(Size P, Real* p_P, const Real* g_P, Real* m_P, Real* v_P, const Adam& a) {
    typedef Vec<Real> V;
    constexpr Size W = LANES<Real>;
    const Real beta1 = Real(a.beta1), gain1 = Real(1 - a.beta1), beta2 = Real(a.beta2), gain2 = Real(1 - a.beta2);
    const Real rate = Real(a.rate), eps = Real(a.eps), decay = Real(a.decay), shrink = Real(a.shrink);
    V bad_p{}, bad_v{};  // 0 as long as everything is finite
    auto step = [&](Real* p_W, const Real* g_W, Real* m_W, Real* v_W) __attribute__((always_inline)) {
        const V old = load(p_W) * shrink, g = decay != 0 ? load(g_W) + decay * old : load(g_W);
        const V m = beta1 * load(m_W) + gain1 * g;
        const V v = beta2 * load(v_W) + gain2 * (g * g);
        const V p = old - rate * (m / (root<Real>(v) + eps));
        bad_p += p * Real(0), bad_v += v * Real(0);
        store(p_W, p), store(m_W, m), store(v_W, v);
    };
    Size k = 0;
    for (; k + W <= P; k += W) step(p_P + k, g_P + k, m_P + k, v_P + k);
    if (k < P) {
        Real last[4][W] = {}, *const from[4] = {p_P + k, const_cast<Real*>(g_P) + k, m_P + k, v_P + k};
        for (int i = 0; i < 4; ++i) std::memcpy(last[i], from[i], (P - k) * sizeof(Real));
        step(last[0], last[1], last[2], last[3]);
        for (int i : {0, 2, 3}) std::memcpy(from[i], last[i], (P - k) * sizeof(Real));
    }
    return (sum<Real>(bad_p) == 0) | (sum<Real>(bad_v) == 0) << 1;
}
