// What the parts of a net agree on: kinds, leaves, watched edges, memory. B batch, T time, N = B T tokens, R rows of a
// tile (tokens), D width, F hidden.
#pragma once
#include "norms.h"
#include "products.h"

constexpr Size TILE = 128;

enum Placement : int64_t { PRE, POST };
enum Mixer : int64_t { LINEAR, MEAN };

// Where modules begin and end: `watch[0][edge]` gets values, `watch[1][edge]` gradients, (N, width) or null.
enum Edge { NORM1, MIXED, MIXER, SUM1, NORM2, INNER, GELU, FFN, SUM2, EDGES };

// Leaves of a block, in the order of their offsets in a lane's parameters; -1: there is none.
enum Leaf { GAIN1, BIAS1, ALPHA1, W, BIAS, GAIN2, BIAS2, ALPHA2, W_IN, B_IN, W_OUT, B_OUT, LEAVES };

// What stays the same over blocks and lanes.
struct Frame {
    Size T, N, D, F;
    Placement placement;
    Mixer mixer;
    NormKind norm;
    double eps;
    bool post() const { return placement == POST && norm != NONE; }
};

// Numbers handed out one after the other, each share beginning a cache line; `at` null: only counted.
template <class Real> struct Arena {
    Real* at;
    Size used = 0;
    Real* take(Size count) {
        const Size line = 64 / sizeof(Real), begin = used;
        used += (count + line - 1) / line * line;
        return at ? at + begin : nullptr;
    }
};

// What the forward pass of a block leaves for the backward pass. Evaluations keep nothing: then one tile serves all.
template <class Real> struct Kept {
    Real *mid_ND, *sum1_ND, *sum2_ND, *h_NF, *slope_NF;
    Statistics<Real>*stats1_N, *stats2_N;
    Kept() = default;
    Kept(Arena<Real>& arena, const Frame& f, Size rows) {
        const Size ld_D = row_size<Real>(f.D), ld_F = row_size<Real>(f.F);
        mid_ND = arena.take(rows * ld_D);
        sum1_ND = f.post() ? arena.take(rows * ld_D) : nullptr;
        sum2_ND = f.post() ? arena.take(rows * ld_D) : nullptr;
        h_NF = arena.take(rows * ld_F), slope_NF = arena.take(rows * ld_F);
        stats1_N = reinterpret_cast<Statistics<Real>*>(arena.take(2 * rows));
        stats2_N = reinterpret_cast<Statistics<Real>*>(arena.take(2 * rows));
    }
    // The part that begins with row n.
    Kept from(Size n, Size ld_D, Size ld_F) const {
        Kept k = *this;
        k.mid_ND += n * ld_D, k.h_NF += n * ld_F, k.slope_NF += n * ld_F, k.stats1_N += n, k.stats2_N += n;
        if (sum1_ND) k.sum1_ND += n * ld_D, k.sum2_ND += n * ld_D;
        return k;
    }
};
