// Vectors of the widest kind that the CPU level has, and the functions of each entry.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define INLINE inline __attribute__((always_inline))

typedef int64_t Size;

template <class Real> struct Simd;
template <> struct Simd<float> {
    typedef float V __attribute__((vector_size(VECTOR_BYTES)));
    typedef int32_t I __attribute__((vector_size(VECTOR_BYTES)));
};
template <> struct Simd<double> {
    typedef double V __attribute__((vector_size(VECTOR_BYTES)));
    typedef int64_t I __attribute__((vector_size(VECTOR_BYTES)));
};
template <class Real> using Vec = typename Simd<Real>::V;
template <class Real> using Ints = typename Simd<Real>::I;

template <class Real> constexpr Size LANES = VECTOR_BYTES / sizeof(Real);  // numbers in a vector
template <class Real> constexpr Size PANEL = 2 * LANES<Real>;              // widths are padded to whole panels

template <class Real> constexpr Size padded(Size width) {
    return (width + PANEL<Real> - 1) / PANEL<Real> * PANEL<Real>;
}

// Numbers from one row of a tile to the next: an odd number of cache lines, so that a column's rows lie in all sets.
template <class Real> constexpr Size row_size(Size width) {
    const Size line = 64 / sizeof(Real), lines = (padded<Real>(width) + line - 1) / line;
    return (lines | 1) * line;
}

template <class Real> INLINE Vec<Real> load(const Real* from) {
    Vec<Real> v;
    std::memcpy(&v, from, sizeof v);
    return v;
}
template <class Real> INLINE void store(Real* to, Vec<Real> v) { std::memcpy(to, &v, sizeof v); }
template <class Real> INLINE Vec<Real> all(Real x) { return x - Vec<Real>{}; }

// The vector that begins at entry `at` of a row, zero from entry `width` on.
template <class Real> INLINE Vec<Real> within(Vec<Real> v, Size at, Size width) {
    if (at + LANES<Real> <= width) return v;
    Real entries[LANES<Real>];
    store(entries, v);
    for (Size k = 0; k < LANES<Real>; ++k)
        if (at + k >= width) entries[k] = 0;
    return load(entries);
}

// The sum of a vector's entries, halves first.
template <class Real> INLINE Real sum(Vec<Real> v) {
    typedef Real Quarter __attribute__((vector_size(16)));
    constexpr int COUNT = VECTOR_BYTES / 16;
    Quarter part[COUNT];
    std::memcpy(part, &v, sizeof v);
    for (int half = COUNT / 2; half; half /= 2)
        for (int k = 0; k < half; ++k) part[k] += part[k + half];
    if constexpr (sizeof(Real) == 8)
        return part[0][0] + part[0][1];
    else
        return (part[0][0] + part[0][2]) + (part[0][1] + part[0][3]);
}

// e^x for x <= 88, 0 below -87; relative error 1e-7. The power of two is written into the exponent's bits.
INLINE Vec<float> exponential(Vec<float> x) {
    typedef Ints<float> I;
    const Vec<float> shifter = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    Vec<float> n = x * 1.44269504f + shifter;
    I bits;
    std::memcpy(&bits, &n, sizeof bits);
    n -= shifter;
    Vec<float> r = x - n * 0.693145752f;
    r = r - n * 1.42860677e-6f;
    Vec<float> y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    I scale = (bits << 23) + 0x3f800000;
    Vec<float> power;
    std::memcpy(&power, &scale, sizeof power);
    return x < -87.0f ? Vec<float>{} : y * power;
}

// gelu(a) = a Phi(a) and gelu'(a) = Phi(a) + a phi(a), with Phi and phi the normal distribution and its density.
// With z = |a|: Phi(-z) = e^(-z^2/2) t P(t), t = 1 / (1 + 0.3 z), P fitted to 3.4e-9 relative for z <= 14.
INLINE void gelu(Vec<float> a, Vec<float>& value, Vec<float>& slope) {
    Vec<float> z = a < 0.0f ? -a : a;
    Vec<float> density = exponential(a * a * -0.5f);
    Vec<float> t = 1.0f / (z * 0.3f + 1.0f);
    Vec<float> u = t * t;  // P(t) = even(t^2) + t odd(t^2): two short chains take less time than a long one.
    Vec<float> odd = u * -0.02061280892f + -0.2280672833f;
    Vec<float> even = u * 0.1123756739f + 0.1915814075f;
    odd = odd * u + -0.07924711775f;
    even = even * u + 0.09605771916f;
    odd = odd * u + 0.07842561465f;
    even = even * u + 0.1102273171f;
    odd = odd * u + 0.119572842f;
    even = even * u + 0.1196866341f;
    Vec<float> p = odd * t + even;
    Vec<float> below = density * (p * t);  // Phi(-z)
    Vec<float> phi = a < 0.0f ? below : 1.0f - below;
    value = a * phi;
    slope = a * (density * 0.398942280f) + phi;
}

// tanh: a polynomial near zero, where 1 - 2 / (e^2z + 1) would lose its digits.
INLINE Vec<float> hyperbolic_tangent(Vec<float> x) {
    Vec<float> z = x < 0.0f ? -x : x, s = x * x;
    Vec<float> near = s * -5.70498872745e-3f + 2.06390887954e-2f;
    near = near * s + -5.37397155531e-2f;
    near = near * s + 1.33314422036e-1f;
    near = near * s + -3.33332819422e-1f;
    near = near * s * x + x;
    Vec<float> capped = z > 10.0f ? all(10.0f) : z;
    Vec<float> far = 1.0f - 2.0f / (exponential(capped * 2.0f) + 1.0f);
    far = x < 0.0f ? -far : far;
    return z < 0.625f ? near : far;
}

INLINE void gelu(Vec<double> a, Vec<double>& value, Vec<double>& slope) {
    for (Size k = 0; k < LANES<double>; ++k) {
        double phi = 0.5 * std::erfc(a[k] * -0.70710678118654752440);
        value[k] = a[k] * phi;
        slope[k] = phi + a[k] * (0.39894228040143267794 * std::exp(-0.5 * a[k] * a[k]));
    }
}

INLINE Vec<double> hyperbolic_tangent(Vec<double> x) {
    for (Size k = 0; k < LANES<double>; ++k) x[k] = std::tanh(x[k]);
    return x;
}

template <class Real> INLINE Vec<Real> root(Vec<Real> x) {
#if VECTOR_BYTES == 64 && defined(__AVX512F__)
    if constexpr (sizeof(Real) == 4) return (Vec<Real>)_mm512_sqrt_ps((__m512)x);
    else return (Vec<Real>)_mm512_sqrt_pd((__m512d)x);
#elif VECTOR_BYTES == 32 && defined(__AVX2__)
    if constexpr (sizeof(Real) == 4) return (Vec<Real>)_mm256_sqrt_ps((__m256)x);
    else return (Vec<Real>)_mm256_sqrt_pd((__m256d)x);
#else
    for (Size k = 0; k < LANES<Real>; ++k) x[k] = std::sqrt(x[k]);
    return x;
#endif
}

INLINE Vec<double> exponential(Vec<double> x) {
    for (Size k = 0; k < LANES<double>; ++k) x[k] = std::exp(x[k]);
    return x;
}
