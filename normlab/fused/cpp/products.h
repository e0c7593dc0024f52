// Products of a tile with a matrix: C = start + A B, each entry's sum in the order of the inner index.
//
// A (rows, inner) is read entry by entry, from rows or (turned) from columns; B (inner, cols) panel by panel of two
// vectors; a block of C stays in registers meanwhile. How rows are shared out among blocks changes no sum.
#pragma once
#include "simd.h"

#if VECTOR_BYTES == 64
constexpr int BLOCK = 12;  // rows of C in registers, of 32
#else
constexpr int BLOCK = 6;  // of 16
#endif

// B as the product reads it: `panel` numbers from one panel to the next, `step` from one row of a panel to the next.
template <class Real> struct Panels {
    const Real* at;
    Size panel, step;
};

// What becomes of a sum: `copy` gets it, then it is scaled, multiplied with `times`, added to `plus`, and goes to `to`.
template <class Real> struct Ending {
    Real* to;
    Size ld;                    // of to
    const Real* bias = nullptr;  // (cols): where each sum starts
    const Real* plus = nullptr;
    Size ld_plus = 0;
    const Real* times = nullptr;
    Size ld_times = 0;
    Real* copy = nullptr;
    Size ld_copy = 0;
    Real scale = 1;
};

template <class Real, int ROWS, bool TURNED>
INLINE void block(Size inner, const Real* a, Size ld_a, const Real* b, Size step, const Ending<Real>& e, Size i0,
                  Size j) {
    typedef Vec<Real> V;
    constexpr Size W = LANES<Real>;
    V c[ROWS][2];
    V first[2] = {V{}, V{}};
    if (e.bias) first[0] = load(e.bias + j), first[1] = load(e.bias + j + W);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) c[i][0] = first[0], c[i][1] = first[1];
    if constexpr (TURNED) {
#pragma GCC unroll 2
        for (Size k = 0; k < inner; ++k) {
            V b0 = load(b), b1 = load(b + W);
#pragma GCC unroll 16
            for (int i = 0; i < ROWS; ++i) {
                V s = all(a[i]);
                c[i][0] += s * b0, c[i][1] += s * b1;
            }
            b += step, a += ld_a;
        }
    } else {
#pragma GCC unroll 2
        for (Size k = 0; k < inner; ++k) {
            V b0 = load(b), b1 = load(b + W);
#pragma GCC unroll 16
            for (int i = 0; i < ROWS; ++i) {
                V s = all(a[i * ld_a + k]);
                c[i][0] += s * b0, c[i][1] += s * b1;
            }
            b += step;
        }
    }
    const V scale = all(e.scale);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
            Size row = i0 + i, col = j + v * W;
            V sum = c[i][v];
            if (e.copy) store(e.copy + row * e.ld_copy + col, sum);
            if (e.times) sum *= load(e.times + row * e.ld_times + col);
            if (e.plus) sum = scale * sum + load(e.plus + row * e.ld_plus + col);
            store(e.to + row * e.ld + col, sum);
        }
}

template <class Real, int ROWS, bool TURNED>
INLINE void blocks(int rows, Size inner, const Real* a, Size ld_a, const Real* b, Size step, const Ending<Real>& e,
                   Size i0, Size j) {
    if (rows == ROWS)
        block<Real, ROWS, TURNED>(inner, a, ld_a, b, step, e, i0, j);
    else if constexpr (ROWS > 1)
        blocks<Real, ROWS - 1, TURNED>(rows, inner, a, ld_a, b, step, e, i0, j);
}

// C (rows, cols) = A B. TURNED: A lies as (inner, rows).
template <bool TURNED, class Real>
__attribute__((noinline)) void product(Size rows, Size cols, Size inner, const Real* a, Size ld_a, Panels<Real> b,
                                       Ending<Real> e) {
    if (!rows) return;
    const Size count = (rows + BLOCK - 1) / BLOCK;
    for (Size j = 0; j < cols; j += PANEL<Real>) {
        const Real* panel = b.at + j / PANEL<Real> * b.panel;
        for (Size k = 0, i = 0; k < count; ++k) {  // Shared out evenly: a block of few rows would wait for its sums.
            Size here = rows / count + (k < rows % count);
            blocks<Real, BLOCK, TURNED>(int(here), inner, a + (TURNED ? i : i * ld_a), ld_a, panel, b.step, e, i, j);
            i += here;
        }
    }
}

// A matrix (inner, cols) with padded rows, as it lies.
template <class Real> Panels<Real> as_it_lies(const Real* b, Size ld) { return {b, PANEL<Real>, ld}; }

// Copy a matrix (inner, cols) into panels, zeros behind its columns. TURNED: it lies as (cols, inner).
template <bool TURNED, class Real> Panels<Real> packed(Real* to, const Real* from, Size inner, Size cols) {
    constexpr Size P = PANEL<Real>;
    for (Size j0 = 0; j0 < cols; j0 += P) {
        Real* panel = to + j0 * inner;
        const Size here = cols - j0 < P ? cols - j0 : P;
        if (!TURNED && here == P)
            for (Size k = 0; k < inner; ++k) std::memcpy(panel + k * P, from + k * cols + j0, P * sizeof(Real));
        else
            for (Size k = 0; k < inner; ++k)
                for (Size j = 0; j < P; ++j)
                    panel[k * P + j] = j >= here ? 0 : TURNED ? from[(j0 + j) * inner + k] : from[k * cols + j0 + j];
    }
    return {to, P * inner, P};
}

// into += the sum over the rows of x, taken in four parts: one long sum of like terms would lose digits.
template <class Real> void add_columns(Size R, Size width, const Real* x, Size ld, Real* into) {
    for (Size j = 0; j < padded<Real>(width); j += LANES<Real>) {
        Vec<Real> part[4] = {};
        Size r = 0;
        for (; r + 4 <= R; r += 4)
            for (Size k = 0; k < 4; ++k) part[k] += load(x + (r + k) * ld + j);
        for (; r < R; ++r) part[0] += load(x + r * ld + j);
        store(into + j, load(into + j) + ((part[0] + part[1]) + (part[2] + part[3])));
    }
}
