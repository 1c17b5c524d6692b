/* The kernels of a device: which element types of the model they are built for, their options, and
 * which are usable after the self-test (selftest.c), which disables only what needs a wrong kernel.
 * Engine thread, inside open. */
#include "gpu/internal.h"
#include "engine/file/blocks.h"
#include "engine/layout/format.h"
#include "engine/file/grids.h"
#include "engine/base/strbuf.h"

#include <stdio.h>
#include <string.h>

#define BLOCKS_AHEAD 2    /* by rule, of a work-item for one token */
#define LOAD_BYTES 4      /* by rule, of weights that it loads at once */
#define ROUTER_CHAINS 128 /* at most, of token_output's router: that many work-items */

static void note_matrix(struct device *d, const struct matrix *m)
{
    if (m->type < DTYPE_COUNT) {
        d->type[m->type].wanted = true;
        if (m->width)
            d->width = m->width;
    }
}

/* By rule: work-items per row of one token in a group of so many rows, `items` altogether if a
 * group may have them. 32 slots of 16 rows read an H200's memory six to seven times as fast as four
 * did.
 */
static int slots_for(const struct device *d, int rows, int items)
{
    int slots = items / rows;

    while (slots > 4 && (cl_ulong)(slots * rows) > d->target.group_items)
        slots /= 2;
    return slots > 32 ? 32 : slots;
}

/* Which element types the model has, how wide its rows are interleaved, what its experts need. */
static void choose(struct device *d)
{
    const struct model *m = d->base.config.model;
    struct block_matrix list[BLOCK_MATRICES];

    d->width = 16;
    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);)
        for (int i = 0, n = model_block_matrices(m, id, list); i < n; i++)
            note_matrix(d, list[i].w);
    for (int l = 0; l < m->hp.n_layers; l++) {
        const struct ffn_shape *s = &hparams_layer(&m->hp, l)->ffn;

        d->acts |= s->kind == FFN_NONE ? 0 : 1u << s->activation;
        d->biased |= s->bias;
    }
    for (int k = 0; k < TOKEN_KERNELS; k++)
        d->rule.of[k] = k == TOKEN_GATE_UP
                            ? (struct token_shape){32, slots_for(d, 64, 1024), BLOCKS_AHEAD,
                                                   LOAD_BYTES}
                            : (struct token_shape){d->width, slots_for(d, d->width, 512),
                                                   BLOCKS_AHEAD, LOAD_BYTES};
    d->row_items = d->wide ? 1 : 64;
    while (!d->wide && d->row_items < 256 && (cl_ulong)d->row_items * 2 <= d->target.group_items)
        d->row_items *= 2;
    d->route_items = d->wide ? 1 : d->target.group_items < 128 ? 64 : 128;
}

static int greater(int a, int b)
{
    return a > b ? a : b;
}

/* Maxima over the layers, for the size of scratch. */
static void find_most(struct device *d)
{
    const struct hparams *hp = &d->base.config.model->hp;

    for (int l = 0; l < hp->n_layers; l++) {
        const struct mixer_shape *m = &hparams_layer(hp, l)->mixer;
        const struct ffn_shape *f = &hparams_layer(hp, l)->ffn;

        d->most_heads = greater(d->most_heads, m->heads * m->key_dim);
        d->most_kv = greater(d->most_kv, m->kv_heads * m->key_dim);
        d->most_arrivals = greater(d->most_arrivals, m->heads + m->kv_heads);
        d->normed = greater(d->normed, shape_normed_rows(hparams_layer(hp, l)));
        if (m->gated)
            d->most_gated = greater(d->most_gated, m->heads * m->key_dim);
        d->most_part = greater(d->most_part, m->heads * (m->key_dim + 2));
        d->most_ffn = greater(d->most_ffn,
                              greater(f->experts ? f->width : 0, f->shared ? f->shared_width : 0));
    }
}

void kernel_set_shape(struct device *d)
{
    const struct hparams *hp = &d->base.config.model->hp;

    /* Mesa's drivers spread work-items over vector lanes themselves and choke on wide vectors. */
    d->wide = opencl_tuning()->shape
                  ? opencl_tuning()->shape == 2
                  : d->target.info.is_cpu_type && strcmp(d->target.platform_name, "rusticl") != 0;
    d->token_attend = d->token_route = d->token_down = d->token_gate_up = d->token_output =
        !d->wide;
    d->small_local = opencl_tuning()->small_local || d->target.local_bytes < LOCAL_FULL;
    d->dot8_function = !d->wide && d->target.has_dot8;
    d->share = d->target.info.unified && !opencl_tuning()->copy;
    d->tile = opencl_tuning()->tile ? opencl_tuning()->tile : TILE;
    d->gemm_tile = !opencl_tuning()->tile ? GEMM_TILE : d->tile == 1 ? 1 : (d->tile + 3) / 4 * 4;
    d->stride = (d->base.config.context + 15) / 16 * 16;
    d->padded_experts = (hp->n_experts + 15) / 16 * 16;
    for (int t = 0; t < DTYPE_COUNT; t++)
        d->type[t].form = GEMM_FOURS;
    find_most(d);
    choose(d);
    d->token_gate_up = d->token_gate_up && d->most_ffn / 32 <= hp->hidden;
    for (int t = 0; t < DTYPE_COUNT; t++)
        d->type[t].shapes = opencl_tuning()->group && dtype_is_quantised(t)
                                ? kernel_set_candidate(d, t, opencl_tuning()->group - 1)
                                : d->rule;
}

int kernel_set_tile(const struct device *d, enum dtype type, bool many)
{
    return !many ? 1 : d->wide || !dtype_is_quantised(type) ? d->tile : d->gemm_tile;
}

size_t kernel_set_rows(const struct device *d, enum dtype type, bool many)
{
    if (!dtype_is_quantised(type))
        return 4;
    if (!d->wide && !many)
        return kernel_set_token_rows(d, type, TOKEN_MATMUL);
    return d->wide || kernel_set_tile(d, type, many) == 1 ? (size_t)d->width : 64;
}

size_t kernel_set_token_rows(const struct device *d, enum dtype type, enum token_kernel k)
{
    return (size_t)d->type[type].shapes.of[k].rows;
}

size_t kernel_set_token_items(const struct device *d, enum dtype type, enum token_kernel k)
{
    const struct token_shape *s = &d->type[type].shapes.of[k];

    return (size_t)(s->rows * s->slots) * (k == TOKEN_GATE_UP ? 2 : 1);
}

/* Blocks of a row, or of several experts' rows, that token_down has in local memory (blocks.cl). */
static int down_blocks(enum dtype type, int rows)
{
    const struct format_traits *f = &format_of[type];
    int terms = f->minimum || f->halves == 2 ? 2 : 1;

    return 4 * (256 / rows * 2 / terms);
}

/* Loads of 16 bytes begin at multiples of these: not behind heads of a byte, of eight rows. */
static bool load_fits(const struct device *d, enum dtype type, int load)
{
    return format_head(type) * d->width % load == 0;
}

/* Whether the device can have such groups, and they do what those by rule do. */
static bool shape_fits(const struct device *d, enum dtype type, enum token_kernel k,
                       const struct token_shape *s)
{
    int items = s->rows * s->slots * (k == TOKEN_GATE_UP ? 2 : 1), blocks = d->most_ffn / 32,
        step = down_blocks(type, s->rows), by_rule = down_blocks(type, d->rule.of[k].rows);

    if ((cl_ulong)items > d->target.group_items || items < ROUTER_CHAINS ||
        !load_fits(d, type, s->load))
        return false;
    return k != TOKEN_DOWN || step >= by_rule || step >= blocks;
}

struct token_shapes kernel_set_mixed(const struct device *d, enum dtype type,
                                     const int chosen[TOKEN_KERNELS])
{
    struct token_shapes s = d->rule;

    for (int k = 0; k < TOKEN_KERNELS; k++) {
        struct token_shape c = chosen[k] < 0 ? d->rule.of[k] : token_candidate(chosen[k], k);

        if (shape_fits(d, type, k, &c))
            s.of[k] = c;
    }
    return s;
}

struct token_shapes kernel_set_candidate(const struct device *d, enum dtype type, int i)
{
    const int chosen[TOKEN_KERNELS] = {i, i, i, i};

    return kernel_set_mixed(d, type, chosen);
}

struct group_shape kernel_set_group(const struct device *d, enum dtype type, bool many, bool gate)
{
    if (d->wide)
        return (struct group_shape){1, 1};
    if (!dtype_is_quantised(type))
        return (struct group_shape){64, 1};
    if (many && d->gemm_tile > 1)
        return (struct group_shape){16, (size_t)(d->gemm_tile /
                                                 kernel_set_item_tokens(d, d->type[type].form))};

    const struct token_shapes *shapes = many ? &d->rule : &d->type[type].shapes;
    const struct token_shape *s = &shapes->of[gate ? TOKEN_GATE_UP : TOKEN_MATMUL];

    return (struct group_shape){(size_t)s->rows, (size_t)s->slots * (gate ? 2 : 1)};
}

static bool has_kernels(enum dtype t)
{
    return t < DTYPE_COUNT &&
           (format_of[t].bits || t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16);
}

void kernel_set_options(const struct device *d, char *out, size_t size)
{
    /* -w: some drivers write the count of their warnings to the terminal */
    snprintf(out, size,
             "-cl-std=CL1.2 -w -DWIDE=%d -DACTS=%u -DBIAS=%d -DDOT8_FUNCTION=%d"
             " -DSMALL_LOCAL=%d -DPOCL=%d",
             d->wide, d->acts ? d->acts : 1, d->biased, d->dot8_function, d->small_local,
             program_is_pocl(d));
}

/* KV_Q8_0 has blocks of 32 dimensions. */
static bool cache_supported(const struct device *d, enum kv_type type)
{
    const struct hparams *hp = &d->base.config.model->hp;
    bool whole = true;

    for (int l = 0; l < hp->n_layers; l++)
        whole = whole && hparams_layer(hp, l)->mixer.key_dim % 32 == 0;
    return type == KV_F32 || type == KV_F16 || whole;
}

static int widest_head(const struct device *d)
{
    const struct hparams *hp = &d->base.config.model->hp;
    int widest = 32;

    for (int l = 0; l < hp->n_layers; l++)
        if (hparams_layer(hp, l)->mixer.key_dim > widest)
            widest = hparams_layer(hp, l)->mixer.key_dim;
    return widest;
}

static int build_core(struct device *d, struct error *e)
{
    static const char *const names[CORE_COUNT] = {
        "norm",         "rms_rows",     "quantise",     "part_gates", "rope",    "attend",
        "attend_merge", "route",        "choose_dense", "group_rows", "combine", "kv_copy",
        "expand",       "scale_rows",   "add",          "add_bias",   "gather",  "scatter",
        "activate",     "token_attend", "token_route"};
    const struct device_config *c = &d->base.config;
    char text[256];
    size_t n;

    kernel_set_options(d, text, sizeof text);
    n = strlen(text);
    snprintf(text + n, sizeof text - n,
             " -DKV_K=%d -DKV_V=%d -DROUTE_ITEMS=%d -DMAX_EXPERTS=%d -DROW_ITEMS=%d -DMAX_DIM=%d",
             cache_supported(d, c->kv_k) ? (int)c->kv_k : 0,
             cache_supported(d, c->kv_v) ? (int)c->kv_v : 0, d->route_items,
             d->padded_experts ? d->padded_experts : 16, d->row_items, widest_head(d));
    if (program_build(d, "core", "norm, attention and routing", text, "", &d->core_program, e) < 0)
        return ERR_DEVICE;
    for (int i = 0; i < (d->wide ? CORE_TOKEN_ATTEND : CORE_COUNT); i++)
        if (program_kernel(d, d->core_program, names[i], &d->core[i], e) < 0)
            return ERR_DEVICE;
    d->core_usable = true;
    return 0;
}

/* Lookup tables of sixteen values each for formats.cl and words.cl. */
static void table_options(const struct format_traits *f, char *out, size_t size)
{
    const int8_t *v = blocks_values[f->lookup];
    size_t n = 0;

    for (int k = 0; k < 4 << f->high && n < size; k++, v += 4)
        n += (size_t)snprintf(out + n, size - n, " -DTABLE%d=0x%02x%02x%02x%02xu", k,
                              v[3] + f->zero, v[2] + f->zero, v[1] + f->zero, v[0] + f->zero);
}

/* The device's matrix engine, or the one that a test wants. */
static int engine_of(const struct device *d)
{
    return d->target.engine ? d->target.engine : opencl_tuning()->engine;
}

/* Build options of formats.cl. load: bytes of a load of weights for one token. */
static void format_options(const struct device *d, enum dtype type, int tokens, int load, char *out,
                           size_t size)
{
    const struct format_traits *f = &format_of[type];
    enum gemm_form form = d->type[type].form;

    snprintf(
        out, size,
        " -DTOKENS=%d -DWIDTH=%d -DLOAD_ROWS=%d -DPER=%d -DHEAD=%d -DBLOCK=%d -DPAYLOAD=%d "
        "-DBITS=%d"
        " -DHIGH=%d -DFLIP=%d -DOFFSET=%d -DMIN=%d -DFACTORS=%d -DHALVES=%d -DLOOKUP=%d -DE8M0=%d"
        " -DWORDS=%d -DITEM_TOKENS=%d -DENGINE=%d -DEMULATED=%d "
        "-DTYPE_%s",
        tokens, d->width, load / 4, f->blocks, format_head(type), format_block_bytes(type),
        format_payload(type), f->bits, f->high, FORMAT_FLIP, f->zero, f->minimum, f->factors,
        f->halves, f->lookup, f->scale == SCALE_E8M0, f->words, kernel_set_item_tokens(d, form),
        form == GEMM_ENGINE ? engine_of(d) : 0, !d->target.engine, dtype_info(type)->word);
    if (f->lookup)
        table_options(f, out + strlen(out), size - strlen(out));
}

/* Shapes of the work-groups for one token (blocks.cl). */
static void shape_options(const struct token_shapes *s, char *out, size_t size)
{
    static const char *const prefix[TOKEN_KERNELS] = {"", "GATE_", "DOWN_", "OUT_"};
    size_t n = 0;

    for (int k = 0; k < TOKEN_KERNELS && n < size; k++)
        n += (size_t)snprintf(out + n, size - n, " -D%sROWS=%d -D%sSLOTS=%d -D%sAHEAD=%d",
                              prefix[k], s->of[k].rows, prefix[k], s->of[k].slots, prefix[k],
                              s->of[k].ahead);
}

/* Codebook of an IQ format as text for words.cl: empty for others. */
static void grid_text(enum dtype type, struct strbuf *out)
{
    static const struct {
        enum dtype type;
        int n;
        const uint32_t *points;
    } grids[] = {{DTYPE_IQ3_XXS, 256, grid_iq3_xxs},     {DTYPE_IQ3_S, 512, grid_iq3_s},
                 {DTYPE_IQ2_XXS, 2 * 256, grid_iq2_xxs}, {DTYPE_IQ2_XS, 2 * 512, grid_iq2_xs},
                 {DTYPE_IQ2_S, 2 * 1024, grid_iq2_s},    {DTYPE_IQ1_S, 2 * 2048, grid_iq1_s},
                 {DTYPE_IQ1_M, 2 * 2048, grid_iq1_s},    {DTYPE_IQ1_M_R, 2 * 2048, grid_iq1_s}};

    strbuf_puts(out, "");
    for (size_t i = 0; i < sizeof grids / sizeof grids[0]; i++) {
        if (grids[i].type != type)
            continue;
        strbuf_printf(out, "#define GRID_POINTS %d\n__constant uint GRID[GRID_POINTS] = {",
                      grids[i].n);
        for (int k = 0; k < grids[i].n; k++)
            strbuf_printf(out, "0x%xu,%s", grids[i].points[k], k % 8 == 7 ? "\n" : "");
        strbuf_puts(out, "};\n");
    }
}

/* A program of a type: for one or many tokens; load as in struct token_shape. */
static int build_program(struct device *d, enum dtype type, int many, int load, const char *table,
                         cl_program *out, struct error *e)
{
    bool quant = dtype_is_quantised(type), token = quant && !many && !d->wide;
    char text[1024], what[80];
    size_t n;

    kernel_set_options(d, text, sizeof text);
    n = strlen(text);
    snprintf(what, sizeof what, "%s kernels, %s%s", dtype_info(type)->word,
             many ? "many tokens" : "one token", load > LOAD_BYTES ? ", four rows a load" : "");
    if (quant)
        format_options(d, type, kernel_set_tile(d, type, many), load, text + n, sizeof text - n);
    else
        snprintf(text + n, sizeof text - n, " -DTOKENS=%d -DF16=%d -DBF16=%d",
                 kernel_set_tile(d, type, many), type == DTYPE_F16, type == DTYPE_BF16);
    n = strlen(text);
    if (quant && !d->wide && kernel_set_tile(d, type, many) == 1) {
        shape_options(many ? &d->rule : &d->type[type].shapes, text + n, sizeof text - n);
        n = strlen(text);
    }
    if (token)
        snprintf(text + n, sizeof text - n, " -DMAX_EXPERTS=%d", OUTPUT_SCORES);
    return program_build(d, token ? "token" : quant ? "quant" : "float", what, text, table, out, e);
}

/* The kernels for one token where not WIDE: from a program for each width of loads that one has. */
static int build_token(struct device *d, enum dtype type, const char *table, struct error *e)
{
    struct type_kernels *t = &d->type[type];
    const struct {
        const char *name;
        enum token_kernel shape;
        struct kernel **at;
    } kernels[] = {{"matmul", TOKEN_MATMUL, &t->matmul[0]},
                   {"down", TOKEN_MATMUL, &t->down[0]},
                   {"gate_up", TOKEN_GATE_UP, &t->gate_up[0]},
                   {"token_gate_up", TOKEN_GATE_UP, &t->token_gate_up},
                   {"token_down", TOKEN_DOWN, &t->token_down},
                   {"token_output", TOKEN_OUTPUT, &t->token_output}};

    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        int load = t->shapes.of[kernels[i].shape].load;
        cl_program *p = load > LOAD_BYTES ? &t->quads : &t->program[0];

        if ((!*p && build_program(d, type, 0, load, table, p, e) < 0) ||
            program_kernel(d, *p, kernels[i].name, kernels[i].at, e) < 0)
            return ERR_DEVICE;
    }
    return 0;
}

/* One or many tokens. */
static int build_tokens(struct device *d, enum dtype type, int many, const char *table,
                        struct error *e)
{
    struct type_kernels *t = &d->type[type];

    if (dtype_is_quantised(type) && !many && !d->wide)
        return build_token(d, type, table, e);
    if (build_program(d, type, many, LOAD_BYTES, table, &t->program[many], e) < 0 ||
        program_kernel(d, t->program[many], "matmul", &t->matmul[many], e) < 0 ||
        program_kernel(d, t->program[many], "gate_up", &t->gate_up[many], e) < 0)
        return ERR_DEVICE;
    return program_kernel(d, t->program[many], "down", &t->down[many], e);
}

static int build_type(struct device *d, enum dtype type, struct error *e)
{
    struct strbuf table = {0};
    int rc;

    grid_text(type, &table);
    rc = table.failed ? error_set(e, ERR_MEMORY, "OpenCL: out of memory for a table of points")
                      : build_tokens(d, type, 0, table.data, e);
    if (rc == 0)
        rc = build_tokens(d, type, 1, table.data, e);
    strbuf_release(&table);
    d->type[type].usable = rc == 0;
    return rc;
}

static void kernel_release(struct kernel **k)
{
    program_kernel_free(*k);
    *k = NULL;
}

static void tokens_release(struct type_kernels *t, int many)
{
    kernel_release(&t->matmul[many]);
    kernel_release(&t->gate_up[many]);
    kernel_release(&t->down[many]);
    if (t->program[many])
        cl.ReleaseProgram(t->program[many]);
    t->program[many] = NULL;
}

const char *kernel_set_form_word(enum gemm_form form)
{
    static const char *const words[] = {"fours", "eights", "engine"};

    return words[form];
}

int kernel_set_item_tokens(const struct device *d, enum gemm_form form)
{
    return form == GEMM_FOURS ? 4 : form == GEMM_EIGHTS ? 8 : d->gemm_tile / 8;
}

bool kernel_set_may(const struct device *d, enum dtype type, enum gemm_form form)
{
    return !d->wide && dtype_is_quantised(type) && d->type[type].usable &&
           (form == GEMM_FOURS || d->gemm_tile % 8 == 0) &&
           (form != GEMM_ENGINE ||
            (engine_of(d) && d->gemm_tile % (engine_of(d) == 1 ? 8 : 16) == 0));
}

void kernel_set_exchange(struct type_kernels *a, struct type_kernels *b)
{
    struct type_kernels t = *a;

#define EXCHANGE(what) (a->what = b->what, b->what = t.what)
    EXCHANGE(shapes);
    EXCHANGE(program[0]);
    EXCHANGE(quads);
    EXCHANGE(matmul[0]);
    EXCHANGE(gate_up[0]);
    EXCHANGE(down[0]);
    EXCHANGE(token_down);
    EXCHANGE(token_gate_up);
    EXCHANGE(token_output);
#undef EXCHANGE
}

void kernel_set_release_tokens(struct type_kernels *t)
{
    kernel_release(&t->token_down);
    kernel_release(&t->token_gate_up);
    kernel_release(&t->token_output);
    tokens_release(t, 0);
    if (t->quads)
        cl.ReleaseProgram(t->quads);
    t->quads = NULL;
}

int kernel_set_shapes(struct device *d, enum dtype type, const struct token_shapes *s,
                      struct type_kernels *before, struct error *e)
{
    struct strbuf table = {0};
    int rc;

    *before = (struct type_kernels){.shapes = *s};
    kernel_set_exchange(&d->type[type], before);
    grid_text(type, &table);
    rc = table.failed ? error_set(e, ERR_MEMORY, "OpenCL: out of memory for a table of points")
                      : build_tokens(d, type, 0, table.data, e);
    strbuf_release(&table);
    if (rc < 0) {
        kernel_set_exchange(&d->type[type], before);
        kernel_set_release_tokens(before);
    }
    return rc;
}

bool kernel_set_has_shapes(const struct device *d, enum dtype t)
{
    return d->type[t].usable && dtype_is_quantised(t);
}

void kernel_set_describe(struct device *d, int left)
{
    struct strbuf b = {0};

    for (int t = 0; t < DTYPE_COUNT; t++) {
        bool any = false;

        if (!kernel_set_has_shapes(d, t))
            continue;
        strbuf_printf(&b, "%s%s", b.len ? "; " : "", dtype_info(t)->word);
        for (int k = 0; k < TOKEN_KERNELS; k++) {
            const struct token_shape *s = &d->type[t].shapes.of[k], *rule = &d->rule.of[k];

            if (token_shape_same(s, rule))
                continue;
            strbuf_printf(&b, " %s %dx%dx%dx%d", token_kernel_name(k), s->rows, s->slots, s->ahead,
                          s->load);
            any = true;
        }
        if (!any)
            strbuf_puts(&b, " by rule");
    }
    if (left)
        strbuf_printf(&b, "; %d still to be measured", left);
    snprintf(d->shapes, sizeof d->shapes, "%s", strbuf_text(&b));
    strbuf_release(&b);
}

int kernel_set_form(struct device *d, enum dtype type, enum gemm_form form, struct error *e)
{
    struct strbuf table = {0};
    int rc;

    tokens_release(&d->type[type], 1);
    d->type[type].form = form;
    grid_text(type, &table);
    rc = table.failed ? error_set(e, ERR_MEMORY, "OpenCL: out of memory for a table of points")
                      : build_tokens(d, type, 1, table.data, e);
    strbuf_release(&table);
    return rc;
}

void kernel_set_release(struct device *d)
{
    for (int i = 0; i < CORE_COUNT; i++)
        kernel_release(&d->core[i]);
    if (d->core_program)
        cl.ReleaseProgram(d->core_program);
    d->core_program = NULL;
    for (int t = 0; t < DTYPE_COUNT; t++) {
        kernel_set_release_tokens(&d->type[t]);
        tokens_release(&d->type[t], 1);
    }
}

bool kernel_set_attends(const struct mixer_shape *s)
{
    return s->kind == MIXER_ATTENTION && (!s->value_dim || s->value_dim == s->key_dim) &&
           s->key_dim % 8 == 0 && s->heads * s->key_dim % 32 == 0 && !s->qk_norm_turned &&
           !s->chunked && !s->experts && !s->index_top && s->value_factor == 0.0f;
}

/* Of attention.cl: the merging group has three numbers a chunk where the values were, and a head's
 * output where the scores of four keys by four were. */
bool kernel_set_token_attends(const struct device *d, const struct mixer_shape *s, int chunks)
{
    size_t values = (size_t)d->row_items * (d->small_local ? 4 : 8) * 16;

    return d->token_attend && s->key_dim % 32 == 0 && widest_head(d) <= 1024 &&
           d->most_arrivals <= d->base.config.model->hp.hidden && (size_t)chunks * 12 <= values;
}

/* Of quant.cl: an expert's blocks all have terms in local memory. */
bool kernel_set_token_downs(const struct device *d, const struct matrix *m)
{
    return d->token_down && dtype_is_quantised(m->type) && d->type[m->type].usable &&
           m->cols / 32 <= down_blocks(m->type, d->type[m->type].shapes.of[TOKEN_DOWN].rows);
}

bool kernel_set_token_gates(const struct device *d, const struct matrix *up)
{
    return d->token_gate_up && dtype_is_quantised(up->type) && d->type[up->type].usable;
}

bool kernel_set_token_norms(const struct device *d)
{
    return d->base.config.model->hp.hidden <= (d->small_local ? 2048 : 4096);
}

/* Of output.cl: one group has the router of a layer, in launches where more groups would wait for
 * its norm; of more experts it reads too much. */
bool kernel_set_token_outputs(const struct device *d, int layer)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct layer_shape *s = hparams_layer(hp, layer);
    enum dtype o = d->base.config.model->layers[layer].o.type;
    int scores = s->ffn.experts + (s->ffn.shared && s->ffn.shared_gate == SHARED_SIGMOID),
        chains = 64 * ((scores + 15) / 16);

    if (!d->token_output || !dtype_is_quantised(o) || !d->type[o].usable ||
        !kernel_set_token_norms(d) || s->parallel || s->norms.after || norms_sum(&s->norms) ||
        hp->residual_scale != 0.0f)
        return false;
    return s->ffn.kind == FFN_DENSE ||
           (s->ffn.kind == FFN_ROUTED && !s->ffn.router.early && scores <= OUTPUT_SCORES &&
            (size_t)chains <= kernel_set_token_items(d, o, TOKEN_OUTPUT));
}

static bool ffn_known(const struct ffn_shape *s, enum dtype type)
{
    int step = dtype_is_quantised(type) ? 32 : 4;

    return !s->router.on_input && !s->grouped &&
           (s->kind == FFN_ROUTED || s->kind == FFN_DENSE || s->kind == FFN_DENSE_AND_ROUTED) &&
           !shape_sparse(s) && (!s->experts || s->width % step == 0) &&
           (!s->shared || s->shared_width % step == 0);
}

bool kernel_set_runs(const struct device *d, const struct layer_shape *shape, enum block_kind kind,
                     enum dtype type)
{
    if (kind == BLOCK_HEAD && d->base.config.model->hp.embedding_width)
        return false; /* a matrix is before it */
    if (kind == BLOCK_ATTENTION &&
        (!kernel_set_attends(&shape->mixer) || d->base.config.model->hp.laurel || shape->weighted ||
         hparams_hyper(&d->base.config.model->hp))) /* matrices of the host's are in its block */
        return false;
    if (kind == BLOCK_EXPERT && (!ffn_known(&shape->ffn, type) || !shape_one_limit(&shape->ffn)))
        return false;
    return kernel_set_supports(d, kind, type);
}

/* Dense layers, and the routers in routing.cl; layers with others run as single jobs, routed by the
 * host. */
bool kernel_set_fuses(const struct device *d, int layer)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct layer_shape *shape = hparams_layer(hp, layer);
    const struct ffn_shape *s = &shape->ffn;
    const struct router_shape *r = &s->router;

    return !norms_sum(&shape->norms) && !shape->inputs && !hp->streams && !r->on_input &&
           !s->grouped && shape->shortcut == SHORTCUT_NONE && !r->identities && !r->row &&
           !shape->weighted && r->kind != ROUTER_ROOT && !r->by_token &&
           (s->kind == FFN_DENSE
                ? s->shared == 1
                : (s->kind == FFN_ROUTED || s->kind == FFN_DENSE_AND_ROUTED) && r->groups <= 16);
}

int kernel_set_build(struct device *d, struct error *e)
{
    struct error why;

    d->dot8_function = d->dot8_function && program_has_dot8(d);
    if (build_core(d, e) < 0)
        return ERR_DEVICE;
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (d->type[t].wanted && has_kernels(t) && build_type(d, t, &why) < 0) {
            if (d->lost)
                return error_set(e, ERR_DEVICE, "%s", why.text);
            log_line(d, why.text); /* blocks of this type stay on the CPU */
        }
    return 0;
}

bool kernel_set_supports(const struct device *d, enum block_kind kind, enum dtype type)
{
    const struct device_config *c = &d->base.config;

    if (d->lost || !d->core_usable || !has_kernels(type) || !d->type[type].usable)
        return false;
    if (kind == BLOCK_EXPERT ? d->type[type].expert_wrong : d->type[type].matmul_wrong)
        return false;
    if (kind == BLOCK_ATTENTION)
        return d->attention_usable && cache_supported(d, c->kv_k) && cache_supported(d, c->kv_v);
    return true;
}
