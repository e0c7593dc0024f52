// Adam's step of P numbers of one lane, in one pass.
#pragma once
#include "simd.h"

// Rate and eps hold the bias corrections.
struct Adam {
    double beta1, beta2, rate, eps;
};

// m += (1 - beta1) (g - m), v += (1 - beta2) (g^2 - v), p -= rate m / (sqrt(v) + eps)
template <class Real> void adam(Size P, Real* p_P, const Real* g_P, Real* m_P, Real* v_P, const Adam& a) {
    typedef Vec<Real> V;
    constexpr Size W = LANES<Real>;
    const Real beta1 = Real(a.beta1), gain1 = Real(1 - a.beta1), beta2 = Real(a.beta2), gain2 = Real(1 - a.beta2);
    const Real rate = Real(a.rate), eps = Real(a.eps);
    auto step = [&](Real* p_W, const Real* g_W, Real* m_W, Real* v_W) __attribute__((always_inline)) {
        const V g = load(g_W), m = beta1 * load(m_W) + gain1 * g, v = beta2 * load(v_W) + gain2 * (g * g);
        store(p_W, load(p_W) - rate * (m / (root<Real>(v) + eps)));
        store(m_W, m), store(v_W, v);
    };
    Size k = 0;
    for (; k + W <= P; k += W) step(p_P + k, g_P + k, m_P + k, v_P + k);
    if (k < P) {  // The last vector is filled up.
        const Size bytes = (P - k) * sizeof(Real);
        Real p_W[W] = {}, g_W[W] = {}, m_W[W] = {}, v_W[W] = {};
        std::memcpy(p_W, p_P + k, bytes), std::memcpy(g_W, g_P + k, bytes);
        std::memcpy(m_W, m_P + k, bytes), std::memcpy(v_W, v_P + k, bytes);
        step(p_W, g_W, m_W, v_W);
        std::memcpy(p_P + k, p_W, bytes), std::memcpy(m_P + k, m_W, bytes), std::memcpy(v_P + k, v_W, bytes);
    }
}
