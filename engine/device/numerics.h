/* The numeric contract: every kernel (scalar, AVX2, AVX-512, OpenCL; one row or many; any number of
 * threads, any chunking) gives the same bits for the operations below. This file is the reference;
 * it is scalar C, compiled with -ffp-contract=off. "fma" is one rounding; every other + - * is one
 * IEEE-754 binary32 operation, round to nearest even. No division or square root is used on this
 * path (OpenCL 1.2 leaves them inexact): num_recip and num_rsqrt replace them. OpenCL code is
 * compiled without any fast-math option and with FP_CONTRACT OFF.
 *
 * 1. Activation quantisation (rows that meet a quantised weight): blocks of 32 columns. amax = max
 * |x| of the block. If amax < 2^-64 (or is not finite) the block is d = 0, q = 0. Else d = amax *
 * (1/127 as float), id = num_recip(d), q = rint(x * id) (nearest even), clamped to [-127, 127]. d
 * stays F32. NaN and infinity: see num_quantise_block.
 * 2. Quantised dot product. Row r, n = cols/32 blocks. s_b = exact integer sum of w*a over block b.
 * One block contributes acc = fma((float)s_b, dw_b * da_b, acc) where dw_b is the F16 scale as F32
 * (Q4_K, Q5_K: d * scale of the sub-block, which is exact; MXFP4: 2^(e-128), codes being doubled).
 * Where halves have integer factors (Q6_K, Q2_K, Q3_K, IQ2_XS, IQ2_S, IQ1_M, IQ1_M_R): s_b =
 * f0*s0 + f1*s1 with the halves' sums, below 2^24. Scales in quarters and eighths (IQ3_XXS, IQ2,
 * IQ1) are taken out of the codes or factors and into dw_b, which stays exact. NVFP4 and IQ2_K to
 * IQ6_K: each half contributes on its own, the first one first, with its own dw_b (IQ*_K: d * its
 * factor, exact). IQ4_KS and IQ5_KS: dw_b is an F32 number * factor, rounded. Types with a minimum
 * (Q4_1, Q5_1; Q4_K, Q5_K: m_b = -(dmin * min), exact; Q2_K: m_b = -dmin) then do acc =
 * fma((float)sa_b, m_b * da_b, acc) with sa_b the integer sum of the block's activations (Q2_K: of
 * the halves' sums times their minima) (m_b negative where the format subtracts). Blocks are cut
 * into four contiguous quarters, quarter i = blocks floor(i*n/4) .. floor((i+1)*n/4)-1, each summed
 * upwards from +0; result (q0 + q1) + (q2 + q3), then + bias when there is one.
 * 3. Float dot product (router; also the scores q.k over head_dim): the same four quarters over
 * single elements, fma per element.
 * 4. Sums over a vector (norms, softmax): 16 lanes, lane j adds elements j, j+16, ... upwards from
 * +0, then lanes fold: for s = 8, 4, 2, 1: lane[j] += lane[j+s] for j < s.
 * 5. LayerNorm: mean = sum4(x) * inv_n (inv_n = 1.0f/n, computed on the host), v = sum4 with
 * fma((x-mean),(x-mean),lane), r = num_rsqrt(fma(v, inv_n, eps)); y = fma((x-mean)*r, w, b), or
 * ((x-mean)*r)*w without bias. RMSNorm: v = sum4 with fma(x,x,lane), r as above; y = (x*r)*w; where
 * the model means 1 + w, that sum is taken once, when the weights are loaded.
 * 6. Rotary: pairs (i, i+rot/2), or (2i, 2i+1) where the model has it so: y0 = fma(x0, c, -(x1*s)),
 * y1 = fma(x1, c, x0*s); c, s from one host table (computed in double, mscale folded in, rounded
 * once). Elements beyond rot are copied. Proportional: pairs (i, i + head/2), i < rot/2.
 * 7. One query head: q' = q * scale after rotary (1/sqrt(head_dim), where scores grow times 1 +
 * growth * ln(1 + floor(p / period)); rounded once); keys, values rounded to the cache type (F16:
 * nearest even; Q8_0: num_kv_quantise_block, then (float)q * d); score_t by rule 3 on q' and k_t;
 *    Tokens lie in chunks of NUM_CHUNK by absolute position. Within chunk c, over its visible
 * tokens: m_c = max score; p_t = num_exp(score_t - m_c); s_c = sum of p_t by rule 4 with lane =
 * position mod 16; o_c[d]: acc = fma(p_t, v_t[d], acc) upwards from +0. Then m = max of m_c, f_c =
 * num_exp(m_c - m), and over the chunks upwards from +0: sum = fma(s_c, f_c, sum), out_d =
 *    fma(o_c[d], f_c, out_d); result out_d * num_recip(sum). Tokens outside the window and chunks
 * without a visible token are skipped. Where the head has a sink s, m is at least s, and sum begins
 * at num_exp(s - m) instead of +0. Where the output is gated, it is that result * num_sigmoid of
 * the gate, or num_softplus of it; a gate may be that of a whole head. Of heads
 * that are routed, the scores by rule 3 in F32 of the normed row and num_route as in rule 10
 * (softmax, normalised) give each expert's weight, and the result is times that of head mod
 * experts, +0 of experts that were not chosen, whose columns of the output projection may be
 * left out, since zeros add nothing to the sums of rules 2 and 11. Without rotary embeddings
 * rule 6 copies and q' = q * scale. Values may be normed by the head before they are rounded: rule
 * 5's x*r.
 * 8. Expert: h = num_activate(gate, up) (gate and up by rule 2, each with its bias where there is
 * one; where the activation has no gate, of up alone), quantised again by rule 1 for down.
 * 9. Combination: acc = w0*e0; acc = fma(w1, e1, acc) ... in routing order; x = x + acc. Attention
 * residual: x = x + y.
 * Where a model scales what its operators add: y by the scale, each w by it, rounded, before that.
 * Embeddings are multiplied with their scale, logits with 1/divisor, rounded once. A learned
 * position is added to the embedding. Logits with a cap: num_softcap. Projections between
 * embeddings or head and the stream: acc = acc + w*x upwards from +0. Norms behind operators, rule
 * 5: of y, or of acc, before it is added to x; where none stands before the operator, of the sum,
 * which becomes x. A dense part d beside routed experts: acc is theirs alone; norm(norm(acc) +
 * norm(d)) is what is added. A layer's scale: x = x * scale at its end. Shortcut-connected experts:
 * acc of the routed ones alone is kept; x = x + w*d with what is always used; at the next layer's
 * end, behind its own sum, x = x + acc.
 * 10. Router weights: num_route (below), scores by rule 3 in F32, + bias where there is one; then
 * times the expert's scale. A shared expert comes after the chosen ones, with the weight 1 or
 * num_sigmoid of its own score by rule 3; a dense layer is one with the weight 1. An identity among
 * the chosen ones has the normed row that experts get as its output.
 *
 * 11. Dot product of float weights (F32, F16, BF16: each is an F32 number exactly; F8: the code's
 * value times its scale, rounded to F32), on the CPU: every set of kernels, one row or many.
 * Columns are filled up with zeros to a multiple of 32. 16 lanes, lane j: acc = fma(w, x, acc) over
 * columns j, j+16, ... upwards from +0; then the fold of rule 4, then + bias. BF16 weights, unless
 * --exact: x is rounded to BF16 (nearest even) first and columns go in pairs, lane j taking pairs
 * j, j+16, ...: acc = fma(w[2p+1], x[2p+1], acc), then acc = fma(w[2p], x[2p], acc). That is what
 * VDPBF16PS does; it takes and gives 0 for subnormal numbers, which other kernels keep. Outside the
 * contract, with tolerances in the tests: OpenCL's float products, and oneDNN's where the user
 * chose them (--float-gemm onednn), whose sums depend on the number of rows: there a token's bits
 * depend on which others were computed with it.
 *
 * 12. Recurrent mixers, everything F32 and token after token, so that no chunking shows. Causal
 * convolution of a channel: acc from its bias or +0, acc = fma(x[t-taps+1+j], w[j], acc) over the
 * taps, the oldest first; then num_silu where the mixer has it. L2 norm: v = sum of rule 4 with
 * fma(x,x,lane), r = num_rsqrt(v + eps), y = (x*r)*scale. Recurrence of a head, the state S of keys
 * x values, a column by itself: with decay g_i (one number of the head, or of each key): delta
 * rule: p = sum of S_i * (g_i*k_i), d = beta * (v - p); Mamba 2: d = dt*v, k is B, q is C. Then S_i
 * = fma(k_i, d, S_i*g_i), o = sum of S_i*q_i. Both sums: four of them, number m over i = m, m+4,
 * ... upwards from +0 in fma, then (m0 + m1) + (m2 + m3). Mamba 2 then o = fma(D, v, o). Mamba 1
 * likewise, g_i = num_exp(dt*A_i), with dt, D and A of each column; what its B, C and dt come from
 * is normed before (rule 5), each by itself.
 *    Decays: num_exp(A * num_softplus(a + bias)), A = -exp(A_log), in double and rounded once when
 * the weights are loaded; bounded (Kimi): num_exp(bound * num_sigmoid(A * (a + bias))), A =
 * exp(A_log). beta = num_sigmoid(b), dt = num_softplus(dt + bias), g = num_exp(dt*A). Outputs:
 * delta nets by rule 5 over a head, times num_silu or num_sigmoid of the gate; Mamba 1 times
 * num_silu; Mamba 2 times it first and then rule 5 over each group.
 *
 * 13. Latent attention (MLA, absorbed), where a token has one latent row for all heads. A row: kv_a
 * (rule 2 or 11); its first kv_rank normed (rule 5), then times the latent factor where there is
 * one, the others rotated (rule 6); rounded to the type of keys. A query: the head of q, without
 * its rotated part, times the head's part of k_b; the rotated part behind it; each times scale,
 * rounded. score_t: 16 lanes, lane j: acc = fma(q, c, acc) over elements j, j+16, ... upwards from
 * +0, then the fold of rule 4. Chunks, weights and sums as in rule 7, the values being a row's
 * first kv_rank elements. The head's output: its part of v_b times that; gated: each value times
 * num_sigmoid of the head's gate.
 *
 * 14. Adapters on a matrix (LoRA), behind its bias, whatever the type of its weights: t_k = rule 11
 * of row k of A (F32) and the row x as it is before rule 1 or any rounding; w_k = (strength *
 * scale) * t_k, the factor in the brackets rounded first; over the rows k of B turned, adapter
 * after adapter: acc = w_0*B_0, acc = fma(w_k, B_k, acc); y = y + acc. A row whose strengths are
 * all 0 stays as it is. Of MLA's kv_b: v_b has the head's rows of B; k_b, whose input is a head's
 * query, has for A the head's other rows of B turned, and for B all of A turned.
 *
 * 15. Inputs of single layers: a token's row of the table times sqrt(n), n values a layer; p = (the
 * matrix by rule 2 or 11, of the embedding) * (1/sqrt(hidden)), each layer's part normed (rule 5);
 * the layer's values are (p + row) * sqrt(1/2). Behind the residual of its experts: x = x +
 * norm(out(num_activate(gate(x), values))), both matrices by rule 2 or 11, the norm by rule 5; then
 * the layer's scale.
 *
 * 16. Latent attention over chosen keys, at most K of them. A key of the indexer: its matrix (rule
 * 2 or 11) of the normed input, normed (rule 5, eps 1e-6), its first values rotated (rule 6),
 * rounded to the type of values. A query of its head h: the head's part of its matrix of MLA's
 * latent query, rotated likewise. w_h: weights' matrix of the normed input, times (1/sqrt(heads *
 * width)), rounded first. A position's score: acc = acc + w_h * max(dot, 0) over the heads upwards
 * from +0, product and sum rounded each, dot as rule 13's. A row sees the K keys of the largest
 * scores; ties go to the lower position; or all, if there are K or fewer. Rule 13 then sums over
 * those alone, in order of position, in chunks of as many of them.
 *    Attention over chosen blocks of R keys: the indexer's key of a position is its matrix of the
 * input, rounded to the type of values. A block's key: rule 7's sum of its positions' keys with the
 * weights 1/R, normed (rule 5) and rotated as its first position. A query of its head: the head's
 * part of its matrix of the input, normed and rotated. Every w_h is 1. A row sees the K/R complete
 * blocks of the largest scores, ties to the lower, and all behind its last complete block; the
 * others' scores are -inf in rule 7.
 *
 * 17. Hyper-connections: n streams S_i, each the embedding at first. Gated: N_i = rule 5 of S_i; u
 * = up(num_silu(down(N) * (1/n))), matrices by rule 2 or 11 over all streams one behind the other;
 * an operator reads x = rule 9's sum of N_i * num_sigmoid(u_i), each with the weight 1/n, from +0;
 * its output y: S_i = S_i + (2 * num_sigmoid(mix_i(N) * (1/n))) * y, product and sum rounded each.
 * Mixed: N = rule 5 of all of S together, without weights; m = mix(N). r_i = num_sigmoid(m_i *
 * scale_0 + base_i) + eps, g_j the same of m_(n+j) with scale_1, times 2, without eps; B_ij = that
 * of m_(2n+in+j) with scale_2, products and sums rounded each: each row's num_exp(B_ij - max) /
 * their sum upwards, + eps; then each column over its sum (upwards) + eps, and each row and column
 * so, by turns, rounds - 1 times. x = rule 9's sum of r_i * S_i from +0; S_j = that of y, S_1 ..
 * S_n with g_j, B_1j .. B_nj. The end reads the same way. An MTP block's S_i at first: its join
 * (rule 2 or 11) of rule 5 of the embedding and, behind it, rule 5 of its model's S_i at the end.
 *
 * 18. Convolved attention, F32 and token after token, from the projections of queries q_h, keys k_g
 * and two halves of values (rule 2 or 11). The first convolution of a channel of q or k: acc from
 * its bias, acc = fma(x[t-taps+1+j], w[j], acc) over the taps, the oldest first; before the first
 * token x is 0. The second one, of a head: rule 3 of a row of weights, its taps one after the
 * other, with the first one's results of as many tokens, the oldest first; + bias. Before the first
 * token those are the bias alone. Residuals: r_h = (q_h + k_g) * 0.5, g the head's key head; of a
 * key head the sum of its heads' r_h upwards, * (1 / their number). A head: convolved + residual;
 * then rule 12's L2 norm with eps 2^-46 and scale sqrt(width); a key times the key head's factor;
 * then rules 6 and 7. Values: the first half's rows of the token, then the second half's of the
 * token before (at position 0 its bias, or 0), cut into heads.
 *
 * 19. Routers by a row: r = rule 3 of the matrix and the normed input, + bias; fma(row of the layer
 * before, factor, that). Scores from r: rule 5; twice rule 3 with a square matrix, + bias,
 * num_gelu_erf; rule 3 with the router's matrix. Identities that give nothing have the weight 0.
 * Weighted streams: x = (y + shift) * scale + (x + stream's shift) * stream's scale, y being the
 * mixer's output or rule 9's acc; embeddings: (e + shift) * scale.
 *
 * 20. Attention over a window and compressed rows. A token's row: its matrix (rule 2 or 11) of the
 * normed input, normed (rule 5), its last rope_dims values rotated (rule 6), rounded to the type of
 * keys. A query: of the normed latent row of queries; each head by rule 5's x*r; rotated likewise;
 * each value times scale, rounded. What compressed rows are made of, of each token: keys c, and
 * gates g, to which the bias of the token's place in its block is added; both rounded to the type
 * of values. The row of a block, value by value over its tokens upwards (overlap: over the first
 * halves of the block before, if there is one, then over the second halves of its own): m = max of
 * g; p = num_exp(g - m); s = s + p upwards from +0; a = fma(p, c, a) upwards from +0; a *
 * num_recip(s). Then normed (rule 5), its last values rotated at the block's first position,
 * rounded to the type of keys; the indexer's: to that of values. The indexer's queries and scores:
 * rule 16, its last values rotated, over blocks in the place of positions. A row sees its window's
 * rows, then the finished blocks, or those chosen, in order: chunks of NUM_CHUNK of that list,
 * scores by rule 13, sums and sink by rule 7, all values of a row being values. The last rope_dims
 * values of a head's result are rotated with the sines negated. Each group of heads times its part
 * of o_a; the groups' results side by side times o.
 *
 * 21. N-grams. Of a token t0 and those before it, t1 being the newest, where from the first that is
 * the end token or before position 0 on all are the end token: for n = 2 .. size m = t0 * c0 ^ ...
 * ^ t(n-1) * c(n-1) in integers of 64 bits, which wrap; hash h of this n is row m mod size_h (not
 * negative) + offset_h of the table. E: those rows side by side, lengths and hashes upwards. K =
 * key(E), v = value(E) by rule 2 or 11; of stream S_i: g = rule 4's sum of (rule 5 of K_i) * (rule
 * 5 of S_i), product and sum rounded each, / sqrt(hidden), rounded; u = sqrt of the larger of |g|
 * and 1e-6, with g's sign, 0 of 0; y_i = num_sigmoid(u) * v. x = rule 5 of y_i; a = a + x * w over
 * the taps, the oldest first, from +0, product and sum rounded each, tap k being that of (taps - 1
 * - k) * size tokens before, 0 before the first. S_i = S_i + (y_i + num_silu(a)). Any thread; pure.
 */
#ifndef ENGINE_DEVICE_NUMERICS_H
#define ENGINE_DEVICE_NUMERICS_H

#include "engine/base/half.h"
#include "engine/device/widths.h"
#include "engine/model/shape.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* 1/x for normal x of either sign in 2^-120 .. 2^120: magic start, four Newton steps in fma (about
 * 1 ulp). */
static inline float num_recip(float x)
{
    float y = num_float((0x7ef311c7u - (num_bits(x) & 0x7fffffffu)) | (num_bits(x) & 0x80000000u));

    for (int i = 0; i < 4; i++)
        y = fmaf(y, fmaf(-x, y, 1.0f), y);
    return y;
}

/* 1/sqrt(x) for x in 2^-120 .. 2^120, positive: magic start, four Newton steps. */
static inline float num_rsqrt(float x)
{
    float y = num_float(0x5f3759dfu - (num_bits(x) >> 1)), h = 0.5f * x;

    for (int i = 0; i < 4; i++)
        y = y * fmaf(-(h * y), y, 1.5f);
    return y;
}

/* exp(x): x clamped to [-87, 88]; below -87 the result is 0. Cody-Waite, degree-6 polynomial
 * (Cephes expf), about 1 ulp. NaN gives NaN on no promise. */
static inline float num_exp(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adds and takes away the fraction */
    float c = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float t = fmaf(c, 1.44269504088896341f, magic); /* its low bits are the integer n */
    float n = t - magic;
    float r = fmaf(n, -0.693359375f, c), p;

    r = fmaf(n, 2.12194440e-4f, r);
    p = 1.9875691500e-4f;
    p = fmaf(p, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p, r * r, r) + 1.0f;
    p = p * num_float((num_bits(t) + 127u) << 23);
    return x < -87.0f ? 0.0f : p;
}

/* 1 / (1 + exp(-x)); the exponent is clamped to +-80 so that no value is subnormal. */
static inline float num_sigmoid(float x)
{
    float c = -x < -80.0f ? -80.0f : -x > 80.0f ? 80.0f : -x;

    return num_recip(1.0f + num_exp(c));
}

/* x * sigmoid(x). */
static inline float num_silu(float x)
{
    return x * num_sigmoid(x);
}

/* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), for (1 + tanh(y)) / 2 is sigmoid(2y). */
static inline float num_gelu(float x)
{
    float inner = fmaf(0.044715f * (x * x), x, x);

    return x * num_sigmoid(1.59576912160573071f * inner);
}

/* x / 2 * (1 + erf(x / sqrt(2))), erf by Abramowitz and Stegun's 7.1.26: within 1.5e-7. */
static inline float num_gelu_erf(float x)
{
    float a = fabsf(x) * 0.70710678118654752f, t = num_recip(fmaf(0.3275911f, a, 1.0f)), p;

    p = fmaf(1.061405429f, t, -1.453152027f);
    p = fmaf(p, t, 1.421413741f);
    p = fmaf(p, t, -0.284496736f);
    p = fmaf(p, t, 0.254829592f);
    p = fmaf(-(p * t), num_exp(-(a * a)), 1.0f);
    return 0.5f * x * (1.0f + (x < 0.0f ? -p : p));
}

static inline float num_relu(float x)
{
    return x > 0.0f ? x : 0.0f;
}

#define NUM_SWIGLU_ALPHA 1.702f

/* gpt-oss (modeling_gpt_oss.py, GptOssExperts): gate at most limit, up within +-limit. */
static inline float num_clamped_swiglu(float gate, float up, float limit)
{
    float g = gate < limit ? gate : limit, u = up < limit ? up : limit;

    u = u > -limit ? u : -limit;
    return (g * num_sigmoid(NUM_SWIGLU_ALPHA * g)) * (u + 1.0f);
}

/* Step 3.5 (modeling_step3p7.py, Step3p7Experts): silu(gate) at most limit, up within +-limit. */
static inline float num_bounded_silu(float gate, float up, float limit)
{
    float g = num_silu(gate), u = up < limit ? up : limit;

    g = g < limit ? g : limit;
    u = u > -limit ? u : -limit;
    return g * u;
}

/* Maple (llama.cpp's ggml_swiglu_clamp): the same bounds around SwiGLU. */
static inline float num_clamped_silu(float gate, float up, float limit)
{
    float g = gate < limit ? gate : limit, u = up < limit ? up : limit;

    u = u > -limit ? u : -limit;
    return num_silu(g) * u;
}

/* Rule 8; limit: of the clamped activations. */
static inline float num_activate(enum activation a, float gate, float up, float limit)
{
    switch (a) {
    case ACTIVATION_GELU: return num_gelu(gate) * up;
    case ACTIVATION_CLAMPED_SWIGLU: return num_clamped_swiglu(gate, up, limit);
    case ACTIVATION_BOUNDED_SILU: return num_bounded_silu(gate, up, limit);
    case ACTIVATION_RELU2: return num_relu(up) * num_relu(up);
    case ACTIVATION_RELU: return num_relu(up);
    case ACTIVATION_GELU_PLAIN: return num_gelu(up);
    case ACTIVATION_REGLU: return num_relu(gate) * up;
    case ACTIVATION_CLAMPED_SILU: return num_clamped_silu(gate, up, limit);
    default: return num_silu(gate) * up;
    }
}

/* log(1 + exp(x)) = max(x, 0) + log1p(u), u = exp(-|x|), and log1p(u) = 2 atanh(u / (2 + u)) by its
 * series, which keeps the small ones' digits: about 2 ulp. */
static inline float num_softplus(float x)
{
    float u = num_exp(x < 0.0f ? x : -x), s = u * num_recip(2.0f + u), z = s * s, p = 1.0f / 15.0f;

    p = fmaf(p, z, 1.0f / 13.0f);
    p = fmaf(p, z, 1.0f / 11.0f);
    p = fmaf(p, z, 1.0f / 9.0f);
    p = fmaf(p, z, 1.0f / 7.0f);
    p = fmaf(p, z, 1.0f / 5.0f);
    p = fmaf(p, z, 1.0f / 3.0f);
    p = fmaf(p * z, s, s);
    return fmaf(2.0f, p, x > 0.0f ? x : 0.0f);
}

/* Rule 1, one block. Returns d; sum (may be NULL) gets the integer sum of q. */
static inline float num_quantise_block(const float *x, int8_t *q, int32_t *sum)
{
    float amax = 0.0f, d, id;
    int32_t total = 0;

    for (int i = 0; i < NUM_BLOCK; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax; /* a NaN never wins */
    /* 2^-64; beyond 1e30 the model has already diverged */
    if (!(amax >= 5.42101086e-20f) || amax > 1e30f) {
        memset(q, 0, NUM_BLOCK);
        if (sum)
            *sum = 0;
        return 0.0f;
    }
    d = amax * (1.0f / 127.0f);
    id = num_recip(d);
    for (int i = 0; i < NUM_BLOCK; i++) {
        float v = x[i] * id;

        v = v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v == v ? v : 0.0f;
        v = (v + 12582912.0f) - 12582912.0f; /* rint, nearest even */
        q[i] = (int8_t)v;
        total += q[i];
    }
    if (sum)
        *sum = total;
    return d;
}

/* Rule 7, Q8_0 cache: 32 elements along head_dim. As rule 1, with the scale stored as F16
 * (returned) and that rounded scale's reciprocal taken; a block whose scale rounds to 0 or infinity
 * is all zeros. */
static inline uint16_t num_kv_quantise_block(const float *x, int8_t *q)
{
    float amax = 0.0f, id;
    uint16_t h;

    for (int i = 0; i < NUM_BLOCK; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    h = num_to_f16(amax < 1e30f ? amax * (1.0f / 127.0f) : 0.0f);
    if ((h & 0x7c00u) == 0x7c00u || h == 0) {
        memset(q, 0, NUM_BLOCK);
        return 0;
    }
    id = num_recip(num_from_f16(h));
    for (int i = 0; i < NUM_BLOCK; i++) {
        float v = x[i] * id;

        v = v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v == v ? v : 0.0f;
        q[i] = (int8_t)((v + 12582912.0f) - 12582912.0f);
    }
    return h;
}

/* Rule 4's fold. */
static inline float num_fold(float lanes[NUM_LANES])
{
    for (int s = NUM_LANES / 2; s; s >>= 1)
        for (int j = 0; j < s; j++)
            lanes[j] += lanes[j + s];
    return lanes[0];
}

/* Rule 3. */
static inline float num_dot(const float *a, const float *b, int n)
{
    float q[4];

    for (int i = 0; i < 4; i++) {
        q[i] = 0.0f;
        for (int c = (int)((int64_t)i * n / 4); c < (int)((int64_t)(i + 1) * n / 4); c++)
            q[i] = fmaf(a[c], b[c], q[i]);
    }
    return (q[0] + q[1]) + (q[2] + q[3]);
}

/* Rule 10, SparseMixer as in the model's official code (modeling_slimmoe.py, sparsemixer(),
 * inference; see also Liu et al. 2023, arXiv:2310.00811): expert 1 is the argmax; its weight is the
 * softmax over the scores that stay after masking those with (max - s) / max(|s|, max) > 2*jitter;
 * expert 2 the argmax of the rest, its weight from its own masked softmax (max and mask from the
 * rest, the factor clamped from below by the new maximum). Not renormalised. Ties: the lowest
 * index. */
static inline void num_sparsemixer(const float *scores, const uint8_t *off, int n, float jitter,
                                   int k, int *experts, float *weights)
{
    uint64_t taken[16] = {0}; /* up to 1024 experts */
    float limit = 2.0f * jitter;

    for (int e = 0; off && e < n; e++)
        taken[e >> 6] |= (uint64_t)(off[e] != 0) << (e & 63);
    for (int slot = 0; slot < k; slot++) {
        int best = -1;
        float max = 0.0f, sum = 0.0f;

        for (int e = 0; e < n; e++)
            if (!(taken[e >> 6] >> (e & 63) & 1) && (best < 0 || scores[e] > max)) {
                best = e;
                max = scores[e];
            }
        for (int e = 0; e < n; e++) {
            float a = fabsf(scores[e]), f = a > max ? a : max;

            if (taken[e >> 6] >> (e & 63) & 1)
                continue;
            /* (max - s) / f > limit, without a division; f <= 0 only when every score is 0, where
             * nothing is masked */
            if (e != best && max - scores[e] > limit * f)
                continue;
            sum = sum + num_exp(scores[e] - max);
        }
        experts[slot] = best;
        weights[slot] = best < 0 ? 0.0f : num_recip(sum);
        if (best >= 0)
            taken[best >> 6] |= (uint64_t)1 << (best & 63);
    }
}

/* cap * tanh(x / cap), inverse = 1 / cap rounded once: tanh(y) is 2 sigmoid(2y) - 1. */
static inline float num_softcap(float x, float cap, float inverse)
{
    return cap * fmaf(2.0f, num_sigmoid(2.0f * (x * inverse)), -1.0f);
}

#define NUM_EXPERTS 1024 /* most of a router */

/* The sum of a group's two largest values, of its largest one: what groups of experts are chosen by
 * where choices are biased, where they are not (DeepSeek-V3, DeepSeek-V2: modeling_deepseek_v3.py,
 * modeling_deepseek_v2.py). */
static inline float num_group_score(const float *choice, int n, bool two)
{
    float first = choice[0], second = -INFINITY;

    for (int e = 1; e < n; e++)
        if (choice[e] > first) {
            second = first;
            first = choice[e];
        } else if (choice[e] > second) {
            second = choice[e];
        }
    return two && n > 1 ? first + second : first;
}

/* All but the best groups are out: -inf. Ties: the lower group. */
static inline void num_choose_groups(const struct router_shape *r, float *choice, int n)
{
    float best[NUM_EXPERTS];
    int size = n / r->groups;

    for (int g = 0; g < r->groups; g++)
        best[g] = num_group_score(choice + g * size, size, r->choice_bias);
    for (int g = 0; g < r->groups; g++) {
        int better = 0;

        for (int o = 0; o < r->groups; o++)
            better += best[o] > best[g] || (best[o] == best[g] && o < g);
        for (int e = 0; better >= r->groups_used && e < size; e++)
            choice[g * size + e] = -INFINITY;
    }
}

/* The best of those not taken; -1: all are. */
static inline int num_best(const float *choice, const uint64_t *taken, int n)
{
    int best = -1;

    for (int e = 0; e < n; e++)
        if (!(taken[e >> 6] >> (e & 63) & 1) && (best < 0 || choice[e] > choice[best]))
            best = e;
    return best;
}

/* A score's share before any sum: num_exp of it behind the largest one, num_sigmoid, or the root of
 * num_softplus, x * num_rsqrt(x), which is 0 for 0. */
static inline float num_share(enum router_kind kind, float score, float max)
{
    float x;

    if (kind == ROUTER_SIGMOID)
        return num_sigmoid(score);
    if (kind != ROUTER_ROOT)
        return num_exp(score - max);
    x = num_softplus(score);
    return x * num_rsqrt(x);
}

/* Whether shares are divided by the sum of all. */
static inline bool num_shares_sum(enum router_kind kind)
{
    return kind != ROUTER_SIGMOID && kind != ROUTER_ROOT;
}

/* num_route with experts that the router does not have: those with off[e] (n) take no part in any
 * maximum, sum or group. A group's score is that of the experts it has left. If fewer than k are
 * left, the last places get expert -1 and weight 0. */
static inline void num_route_without(const struct router_shape *r, const float *scores,
                                     const float *bias, const uint8_t *off, int n, int k,
                                     int *experts, float *weights)
{
    float p[NUM_EXPERTS], choice[NUM_EXPERTS], max = -INFINITY, sum = 0.0f, scale;
    uint64_t taken[NUM_EXPERTS / 64] = {0};
    int size = r->groups > 1 ? n / r->groups : n;

    if (r->kind == ROUTER_SPARSEMIXER) {
        num_sparsemixer(scores, off, n, r->jitter, k, experts, weights);
        return;
    }
    for (int e = 0; e < n; e++)
        max = !off[e] && scores[e] > max ? scores[e] : max;
    for (int e = 0; e < n; e++) {
        if (off[e])
            continue;
        p[e] = num_share(r->kind, scores[e], max);
        sum = sum + p[e];
    }
    scale = num_shares_sum(r->kind) ? num_recip(sum) : 1.0f;
    for (int e = 0; e < n; e++) {
        p[e] = off[e] ? 0.0f : p[e] * scale;
        choice[e] = off[e] ? -INFINITY : bias ? p[e] + bias[e] : p[e];
        taken[e >> 6] |= (uint64_t)(off[e] != 0) << (e & 63);
    }
    for (int g = 0; r->groups > 1 && r->choice_bias && g < r->groups; g++) {
        int only = -1, left = 0;

        for (int e = g * size; e < (g + 1) * size; e++)
            if (!off[e]) {
                only = e;
                left++;
            }
        if (left == 1 && size > 1) /* its sum of two is then its own */
            choice[only == g * size ? only + 1 : g * size] = 0.0f;
    }
    if (r->groups > 1)
        num_choose_groups(r, choice, n);
    sum = 0.0f;
    for (int slot = 0; slot < k; slot++) {
        int best = num_best(choice, taken, n);

        experts[slot] = best;
        weights[slot] = best < 0 ? 0.0f : p[best];
        if (best >= 0)
            taken[best >> 6] |= (uint64_t)1 << (best & 63);
        sum = sum + weights[slot];
    }
    scale = (r->normalised ? num_recip(sum + r->floor) : 1.0f) *
            (r->factor != 0.0f ? r->factor : 1.0f);
    for (int slot = 0; slot < k; slot++)
        weights[slot] = experts[slot] < 0 ? 0.0f : weights[slot] * scale;
}

/* Rule 10. scores (n) become k experts, the likeliest first, and their weights. Softmax: p_e =
 * num_exp(s_e - max), over their sum, taken upwards; sigmoid: num_sigmoid(s_e); root: num_share.
 * bias (n) or NULL is added for the choice alone. Normalised: over the sum of the chosen ones, in
 * the order of choice, plus the floor. Ties: the lower index. */
static inline void num_route(const struct router_shape *r, const float *scores, const float *bias,
                             int n, int k, int *experts, float *weights)
{
    float p[NUM_EXPERTS], choice[NUM_EXPERTS], max = scores[0], sum = 0.0f, scale;
    uint64_t taken[NUM_EXPERTS / 64] = {0};

    if (r->kind == ROUTER_SPARSEMIXER) {
        num_sparsemixer(scores, NULL, n, r->jitter, k, experts, weights);
        return;
    }
    for (int e = 1; e < n; e++)
        max = scores[e] > max ? scores[e] : max;
    for (int e = 0; e < n; e++) {
        p[e] = num_share(r->kind, scores[e], max);
        sum = sum + p[e];
    }
    scale = num_shares_sum(r->kind) ? num_recip(sum) : 1.0f;
    for (int e = 0; e < n; e++) {
        p[e] = p[e] * scale;
        choice[e] = bias ? p[e] + bias[e] : p[e];
    }
    if (r->groups > 1)
        num_choose_groups(r, choice, n);
    sum = 0.0f;
    for (int slot = 0; slot < k; slot++) {
        int best = -1;

        for (int e = 0; e < n; e++)
            if (!(taken[e >> 6] >> (e & 63) & 1) && (best < 0 || choice[e] > choice[best]))
                best = e;
        taken[best >> 6] |= (uint64_t)1 << (best & 63);
        experts[slot] = best;
        weights[slot] = p[best];
        sum = sum + p[best];
    }
    scale = (r->normalised ? num_recip(sum + r->floor) : 1.0f) *
            (r->factor != 0.0f ? r->factor : 1.0f);
    for (int slot = 0; slot < k; slot++)
        weights[slot] = weights[slot] * scale;
}

/* Rule 10, where experts follow from the token: their weights, as those of num_route; off: NULL, or
 * experts that the router does not have (n), whose places get expert -1 and weight 0. */
static inline void num_weigh(const struct router_shape *r, const float *scores, const uint8_t *off,
                             int n, int k, int *experts, float *weights)
{
    float max = -INFINITY, all = 0.0f, sum = 0.0f, scale;

    for (int e = 0; e < n; e++)
        max = !(off && off[e]) && scores[e] > max ? scores[e] : max;
    for (int e = 0; e < n && num_shares_sum(r->kind); e++)
        if (!(off && off[e]))
            all = all + num_share(r->kind, scores[e], max);
    scale = num_shares_sum(r->kind) ? num_recip(all) : 1.0f;
    for (int i = 0; i < k; i++) {
        if (off && off[experts[i]])
            experts[i] = -1;
        weights[i] = experts[i] < 0 ? 0.0f : num_share(r->kind, scores[experts[i]], max) * scale;
        sum = sum + weights[i];
    }
    scale = (r->normalised ? num_recip(sum + r->floor) : 1.0f) *
            (r->factor != 0.0f ? r->factor : 1.0f);
    for (int i = 0; i < k; i++)
        weights[i] = experts[i] < 0 ? 0.0f : weights[i] * scale;
}

/* Rule 10, adjugate experts, after whatever changed the k chosen ones: place i gets that of the
 * i-th's group and the group's weights, summed in the order of places, times the factor; if the
 * group had a place before, expert -1 and weight 0 (authors' modeling_grove_moe.py, which adds them
 * one by one). */
static inline void num_adjugates(const struct ffn_shape *s, const int *experts,
                                 const float *weights, int *adjugates, float *sums)
{
    for (int i = 0; i < s->used; i++) {
        int group = experts[i] < 0 ? -1 : experts[i] / s->grouped, first = i;

        for (int k = i - 1; k >= 0 && group >= 0; k--)
            if (experts[k] >= 0 && experts[k] / s->grouped == group)
                first = k;
        adjugates[i] = group < 0 || first < i ? -1 : s->experts + group;
        sums[i] = adjugates[i] < 0 ? 0.0f : weights[i];
        if (first < i)
            sums[first] = sums[first] + weights[i];
    }
    for (int i = 0; i < s->used; i++)
        sums[i] = sums[i] * s->shared_factor;
}

#endif
