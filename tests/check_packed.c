/* Packed checkpoints: every value of the golden matrices bit by bit (their rows' sums), as the
 * types that hold them and as floats; damaged parts and unknown settings refused with one clear
 * line; whole models against the goldens of their dequantised weights. */
#include "engine/file/packed.h"

#include "engine/base/hash.h"
#include "engine/file/weights.h"
#include "engine/layout/pack.h"
#include "tests/build_file.h"
#include "tests/golden.h"
#include "tests/support.h"

#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPTQ "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": %d}"
#define GPTQ8 "{\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": %d}"
#define INT8                                                                              \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "         \
    "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": "          \
    "{\"num_bits\": 8, \"type\": \"int\", \"symmetric\": true, \"strategy\": \"group\", " \
    "\"group_size\": %d}}}}"
#define AWQ                                                                               \
    "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": %d, \"zero_point\": true, " \
    "\"version\": \"gemm\"}"
#define INT4                                                                              \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "         \
    "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": "          \
    "{\"num_bits\": 4, \"type\": \"int\", \"symmetric\": true, \"strategy\": \"group\", " \
    "\"group_size\": %d}}}}"
#define INT4_FURTHER(settings)                                                             \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "          \
    "\"config_groups\": {\"group_0\": {\"weights\": {\"num_bits\": 4, \"type\": \"int\", " \
    "\"strategy\": \"group\", \"group_size\": %d, " settings "}}}}"
#define INT4_ASYM INT4_FURTHER("\"symmetric\": false")
#define INT4_ACT INT4_FURTHER("\"symmetric\": false, \"actorder\": \"group\"")
#define GPTQ_V2                                                         \
    "{\"quant_method\": \"gptq\", \"bits\": 4, \"checkpoint_format\": " \
    "\"gptq_v2\", \"group_size\": %d}"
#define FP8 "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"weight_block_size\": [128, %d]}"
#define FP8_ROWS                                                                   \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", " \
    "\"config_groups\": {\"group_0\": {\"weights\": {\"num_bits\": %d, \"type\": " \
    "\"float\", \"symmetric\": true, \"strategy\": \"channel\"}}}}"
#define MXFP4 "{\"quant_method\": \"mxfp4\", \"unused\": %d}"

#define MXFP4_CT                                                                        \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp4-pack-quantized\", " \
    "\"config_groups\": {\"group_0\": {\"weights\": {\"num_bits\": 4, \"type\": "       \
    "\"float\", \"symmetric\": true, \"strategy\": \"group\", \"group_size\": %d}}}}"

#define NVFP4_CT                                                                        \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"nvfp4-pack-quantized\", " \
    "\"config_groups\": {\"group_0\": {\"weights\": {\"num_bits\": 4, \"type\": "       \
    "\"float\", \"symmetric\": true, \"strategy\": \"tensor_group\", \"group_size\": %d}}}}"
#define MODELOPT "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"group_size\": %d}"
#define MODELOPT_MIXED                                                       \
    "{\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", " \
    "\"quantized_layers\": {\"x\": {\"quant_algo\": \"FP8\", \"group_size\": %d}}}"
#define MODELOPT_MX \
    "{\"quant_method\": \"modelopt\", \"quant_algo\": \"MXFP4\", \"group_size\": %d}"
#define BNB                                                             \
    "{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, "     \
    "\"bnb_4bit_quant_type\": \"nf4\", \"bnb_4bit_use_double_quant\": " \
    "true, \"x\": %d}"
#define BNB_FP4                                                     \
    "{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, " \
    "\"bnb_4bit_quant_type\": \"fp4\", \"x\": %d}"
#define MLX4 "{\"bits\": 4, \"group_size\": %d}"
#define MLX8 "{\"bits\": 4, \"group_size\": 64, \"x\": {\"bits\": 8, \"group_size\": %d}}"
#define MLX_MX "{\"bits\": 4, \"mode\": \"mxfp4\", \"group_size\": %d}"
#define MLX_NV "{\"bits\": 4, \"mode\": \"nvfp4\", \"group_size\": %d}"

#define PARTS 6
static const struct {
    const char *name, *config;
    int number;
    const char *parts[PARTS];
    enum dtype type;
} golden[] = {
    {"gptq-g128-sym", GPTQ, 128, {".qweight", ".qzeros", ".scales", ".g_idx"}, DTYPE_Q4_0},
    {"gptq-g32-asym", GPTQ, 32, {".qweight", ".qzeros", ".scales", ".g_idx"}, DTYPE_Q5_0},
    {"gptq-g32-act", GPTQ, 32, {".qweight", ".qzeros", ".scales", ".g_idx"}, DTYPE_Q4_0},
    {"gptq-g128-act", GPTQ, 128, {".qweight", ".qzeros", ".scales", ".g_idx"}, DTYPE_Q4_0},
    {"awq-g128", AWQ, 128, {".qweight", ".qzeros", ".scales"}, DTYPE_Q5_0},
    {"awq-g32", AWQ, 32, {".qweight", ".qzeros", ".scales"}, DTYPE_Q5_0},
    {"ct-int4-g32", INT4, 32, {".weight_packed", ".weight_scale", ".weight_shape"}, DTYPE_Q4_0},
    {"fp8-block", FP8, 128, {".weight", ".weight_scale_inv"}, DTYPE_F8},
    {"fp8-channel", FP8_ROWS, 8, {".weight", ".weight_scale"}, DTYPE_F8},
    {"mxfp4", MXFP4, 0, {"_blocks", "_scales"}, DTYPE_MXFP4},
    {"ct-int4-g32-asym",
     INT4_ASYM,
     32,
     {".weight_packed", ".weight_scale", ".weight_shape", ".weight_zero_point"},
     DTYPE_Q5_0},
    {"ct-int4-g32-asym-act",
     INT4_ACT,
     32,
     {".weight_packed", ".weight_scale", ".weight_shape", ".weight_zero_point", ".weight_g_idx"},
     DTYPE_Q5_0},
    {"gptq-g32-v2", GPTQ_V2, 32, {".qweight", ".qzeros", ".scales", ".g_idx"}, DTYPE_Q5_0},
    {"gptq8-g32-sym", GPTQ8, 32, {".qweight", ".qzeros", ".scales", ".g_idx"}, DTYPE_Q8_0},
    {"gptq8-g32-act", GPTQ8, 32, {".qweight", ".qzeros", ".scales", ".g_idx"}, DTYPE_Q8_0},
    /* codes less their zero points need 9 bits */
    {"gptq8-g32-asym", GPTQ8, 32, {".qweight", ".qzeros", ".scales", ".g_idx"}, DTYPE_F32},
    {"ct-int8-g32", INT8, 32, {".weight_packed", ".weight_scale", ".weight_shape"}, DTYPE_Q8_0},
    {"ct-mxfp4", MXFP4_CT, 32, {".weight_packed", ".weight_scale"}, DTYPE_MXFP4},
    {"ct-nvfp4",
     NVFP4_CT,
     16,
     {".weight_packed", ".weight_scale", ".weight_global_scale"},
     DTYPE_NVFP4_S},
    {"modelopt-nvfp4",
     MODELOPT,
     16,
     {".weight", ".weight_scale", ".weight_scale_2"},
     DTYPE_NVFP4_S},
    {"modelopt-mxfp4", MODELOPT_MX, 32, {".weight", ".weight_scale"}, DTYPE_MXFP4},
    {"modelopt-fp8", MODELOPT_MIXED, 16, {".weight", ".weight_scale"}, DTYPE_F8},
    {"bnb-nf4",
     BNB,
     0,
     {".weight", ".weight.absmax", ".weight.quant_map", ".weight.nested_absmax",
      ".weight.nested_quant_map", ".weight.quant_state.bitsandbytes__nf4"},
     DTYPE_BF16},
    {"bnb-fp4",
     BNB_FP4,
     0,
     {".weight", ".weight.quant_state.bitsandbytes__fp4", ".weight.absmax", ".weight.quant_map"},
     DTYPE_F16},
    {"mlx-4", MLX4, 64, {".weight", ".scales", ".biases"}, DTYPE_Q4_1},
    /* scales below F16's */
    {"mlx-4-small", MLX4, 32, {".weight", ".scales", ".biases"}, DTYPE_BF16},
    {"mlx-8", MLX8, 128, {".weight", ".scales", ".biases"}, DTYPE_F16},
    {"mlx-mxfp4", MLX_MX, 32, {".weight", ".scales"}, DTYPE_MXFP4},
    {"mlx-nvfp4", MLX_NV, 16, {".weight", ".scales"}, DTYPE_NVFP4},
};
/* clang-format off */
enum { SYM, ASYM, ACT, ACT128, AWQ128, AWQ32, CT, BLOCKS, ROWS, MX, CT_ASYM, CT_ACT, V2, SYM8, ACT8,
       ASYM8, CT8, CT_MX, CT_NV, OPT_NV, OPT_MX, OPT_FP8, NF4, FP4, MLX_4, MLX_SMALL, MLX_8,
       MLX_MXFP4, MLX_NVFP4, GOLDEN };
/* clang-format on */

static struct weight_file *source, *further, *floats; /* further, floats: of what came later */
static char folder[300], path[700];

static void open_source(void)
{
    struct error e = {0};

    ck_assert_msg(weight_file_open(&source, support_path("golden/packed/formats.safetensors"),
                                   false, &e) == 0,
                  "%s", e.text);
    ck_assert_msg(weight_file_open(&further, support_path("golden/packed/further.safetensors"),
                                   false, &e) == 0,
                  "%s", e.text);
    ck_assert_msg(weight_file_open(&floats, support_path("golden/packed/floats.safetensors"), false,
                                   &e) == 0,
                  "%s", e.text);
    snprintf(folder, sizeof folder, "%s/packed", support_tmpdir());
    mkdir(folder, 0700);
}

static void close_source(void)
{
    weight_file_close(source);
    weight_file_close(further);
    weight_file_close(floats);
}

static const struct tensor_view *source_part(int which, const char *part)
{
    char name[100];

    /* the file's spelling of one matrix is not that of checkpoints */
    snprintf(name, sizeof name, "%s%s%s", golden[which].name, *part == '_' ? "." : "",
             *part == '_' ? part + 1 : part);
    return weight_file_find(which < CT_ASYM ? source : which < CT_NV ? further : floats, name);
}

/* The golden matrix as the only one, "x", of a checkpoint. */
static void make(struct made_file *m, int which)
{
    memset(m, 0, sizeof *m);
    for (int i = 0; i < PARTS && golden[which].parts[i]; i++) {
        const struct tensor_view *t = source_part(which, golden[which].parts[i]);
        struct made_tensor *to = &m->t[m->n++];

        ck_assert_ptr_nonnull(t);
        *to = (struct made_tensor){.type = t->type, .n_dims = t->n_dims, .bytes = t->bytes};
        snprintf(to->name, sizeof to->name, "x%s", golden[which].parts[i]);
        memcpy(to->dims, t->dims, sizeof to->dims);
        to->data = malloc(t->bytes);
        memcpy(to->data, t->data, t->bytes);
    }
}

static struct made_tensor *part(struct made_file *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->t[i].name, name) == 0)
            return &m->t[i];
    ck_abort_msg("no part %s", name);
}

static void write_config(const char *config, int number)
{
    struct bytes b = {0};
    char text[600];

    snprintf(text, sizeof text, config, number);
    put_text(&b, "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"quantization_config\": ");
    put(&b, text, strlen(text));
    put_text(&b, "}");
    snprintf(path, sizeof path, "%s/config.json", folder);
    ck_assert_int_eq(save(&b, path), 0);
    free(b.data);
}

static void write_model(const struct made_file *m, const char *config, int number)
{
    struct bytes b = made_safetensors(m, 0, m->n);

    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ck_assert_int_eq(save(&b, path), 0);
    free(b.data);
    write_config(config, number);
}

static void check_row(const float *got, const float *want, int64_t n, const char *what, int64_t row)
{
    for (int64_t c = 0; c < n; c++)
        ck_assert_msg(memcmp(&got[c], &want[c], 4) == 0 || (got[c] == 0.0f && want[c] == 0.0f),
                      "%s: row %lld, column %lld is %a, not %a", what, (long long)row, (long long)c,
                      (double)got[c], (double)want[c]);
}

/* The type has a factor where the file has a divisor: two roundings instead of one. */
static void check_near(const float *got, const float *want, int64_t n, const char *what)
{
    for (int64_t c = 0; c < n; c++)
        ck_assert_msg(fabsf(got[c] - want[c]) <= 2.4e-7f * fabsf(want[c]),
                      "%s: column %lld is %a, not %a", what, (long long)c, (double)got[c],
                      (double)want[c]);
}

static void back_in_order(const uint16_t *order, int64_t n, float *row)
{
    float ordered[1024];

    memcpy(ordered, row, (size_t)n * sizeof *row);
    for (int64_t c = 0; c < n && order; c++)
        row[order[c]] = ordered[c];
}

/* What is unpacked of the golden matrix in x.weight, (rows, cols): the golden sums say that every
 * value is right (tests/tools/golden_sums.py: FNV-1a of a row's floats, zeros without a sign). The
 * caller frees it. */
static float *checked_values(const struct tensor_view *t, int which)
{
    const struct tensor_view *sums = source_part(which, ".sums");
    int64_t rows = 1, cols = t->dims[t->n_dims - 1];
    float *values;

    ck_assert_int_eq(t->n_dims, sums->n_dims + 1);
    for (int i = 0; i < sums->n_dims; i++) {
        ck_assert_int_eq(t->dims[i], sums->dims[i]);
        rows *= t->dims[i];
    }
    values = malloc((size_t)(rows * cols) * sizeof *values);
    for (int64_t r = 0; r < rows; r++) {
        float *row = values + r * cols;
        uint64_t sum;

        packed_values(t, r, row);
        for (int64_t c = 0; c < cols; c++)
            row[c] = row[c] == 0.0f ? 0.0f : row[c];
        memcpy(&sum, sums->data + 8 * r, 8);
        ck_assert_msg(hash_bytes(HASH_START, row, (size_t)cols * 4) == sum, "%s: row %lld: %a ..",
                      golden[which].name, (long long)r, (double)row[0]);
    }
    return values;
}

/* The same of a checkpoint made for it. */
static float *golden_matrix(int which)
{
    struct made_file m;
    struct weight_file *f;
    struct error e = {0};
    float *values;

    make(&m, which);
    write_model(&m, golden[which].config, golden[which].number);
    made_release(&m);
    ck_assert_msg(weight_file_open(&f, folder, false, &e) == 0, "%s", e.text);
    values = checked_values(weight_file_find(f, "x.weight"), which);
    weight_file_close(f);
    return values;
}

START_TEST(golden_values)
{
    /* as they are multiplied: whole groups, parts of them, from other rows on, every third */
    static const struct {
        int first, most, step;
    } ways[] = {{0, PACKED_ROWS, 1}, {1, 7, 1}, {3, 9, 1}, {2, 1, 1}, {0, 5, 3}, {1, 13, 3}};
    const struct tensor_view *t;
    uint8_t packed[PACKED_ROWS * 4096];
    int64_t rows = 1, cols;
    struct made_file m;
    struct weight_file *f;
    struct error e = {0};
    float got[1024], *want;

    make(&m, _i);
    write_model(&m, golden[_i].config, golden[_i].number);
    made_release(&m);
    ck_assert_msg(weight_file_open(&f, folder, false, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(weight_file_count(f), 1);
    t = weight_file_find(f, _i == MX ? "x" : "x.weight");
    ck_assert_ptr_nonnull(t);
    ck_assert_ptr_nonnull(t->packed);
    ck_assert_str_eq(dtype_info(t->type)->word, dtype_info(golden[_i].type)->word);
    ck_assert((t->packed->order != NULL) ==
              (_i == ACT || _i == ACT128 || _i == CT_ACT || _i == ACT8));
    want = checked_values(t, _i);
    cols = t->dims[t->n_dims - 1];
    for (int i = 0; i < t->n_dims - 1; i++)
        rows *= t->dims[i];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        int64_t step = ways[i].step;

        for (int64_t r = ways[i].first, n; r < rows; r += n * step) {
            n = (rows - r + step - 1) / step;
            n = n < ways[i].most ? n : ways[i].most;
            packed_rows(t, r, (int)step, (int)n, packed);
            for (int64_t k = 0; k < n; k++) {
                row_to_f32(t->type, packed + (size_t)k * dtype_row_bytes(t->type, cols), cols, got);
                back_in_order(t->packed->order, cols, got);
                if (_i == CT_NV) {
                    check_near(got, want + (r + k * step) * cols, cols, golden[_i].name);
                    continue;
                }
                check_row(got, want + (r + k * step) * cols, cols, golden[_i].name, r + k * step);
            }
        }
    }
    free(want);
    weight_file_close(f);
}
END_TEST

static void refuse(const char *says, const char *names);
static void drop(struct made_file *m, const char *name);
static void set_dims(struct made_tensor *t, int64_t d0, int64_t d1);

/* DeepSeek V4's own checkpoints: FP8 by 128 x 128 and FP4 by 32 in one file, each with powers of
 * two beside. Values of FP8 by their definition, those of FP4 as compressed-tensors has them. */
static float e4m3(uint8_t code)
{
    int exponent = code >> 3 & 15, digits = code & 7;
    float x = exponent ? ldexpf(1.0f + (float)digits / 8, exponent - 7)
                       : ldexpf((float)digits / 8, -6);

    return code & 128 ? -x : x;
}

/* The golden blocks with other scales, and the golden rows of MXFP4. */
static void make_fp8_fp4(struct made_file *m)
{
    struct made_tensor *scales;
    struct made_file four;

    make(m, BLOCKS);
    scales = part(m, "x.weight_scale_inv");
    strcpy(scales->name, "x.scale");
    scales->type = DTYPE_U8;
    scales->bytes /= 4;
    for (size_t i = 0; i < scales->bytes; i++)
        scales->data[i] = (uint8_t)(117 + 3 * i);
    make(&four, CT_MX);
    strcpy(part(&four, "x.weight_packed")->name, "y.weight");
    strcpy(part(&four, "x.weight_scale")->name, "y.scale");
    for (int i = 0; i < four.n; i++)
        m->t[m->n++] = four.t[i];
}

START_TEST(fp8_and_fp4_of_deepseek)
{
    const struct tensor_view *t, *codes = source_part(BLOCKS, ".weight");
    struct made_file m;
    struct weight_file *f;
    struct error e = {0};
    float got[1024];

    ck_assert_int_eq(dtype_from_safetensors("F8_E8M0"), DTYPE_U8);
    ck_assert_int_eq(dtype_from_safetensors("I8"), DTYPE_U8);
    make_fp8_fp4(&m);
    made_add(&m, "z.scale", DTYPE_F32, 3, 0, 0, NULL); /* somebody else's */
    write_model(&m, FP8, 128);
    made_release(&m);
    ck_assert_msg(weight_file_open(&f, folder, false, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(weight_file_count(f), 3);
    t = weight_file_find(f, "y.weight");
    ck_assert_int_eq(t->type, DTYPE_MXFP4);
    free(checked_values(t, CT_MX));
    t = weight_file_find(f, "x.weight");
    ck_assert_int_eq(t->type, DTYPE_F8);
    for (int64_t r = 0; r < t->dims[0]; r++) {
        int64_t cols = t->dims[1], across = (cols + 127) / 128;

        packed_values(t, r, got);
        for (int64_t c = 0; c < cols; c++) {
            int at = (int)(r / 128 * across + c / 128);
            float want = e4m3(((const uint8_t *)codes->data)[r * cols + c]) *
                         ldexpf(1.0f, 117 + 3 * at - 127);

            ck_assert_msg(got[c] == want, "row %d, column %d: %a, not %a", (int)r, (int)c,
                          (double)got[c], (double)want);
        }
    }
    weight_file_close(f);
    make_fp8_fp4(&m);
    drop(&m, "y.scale");
    write_model(&m, FP8, 128);
    made_release(&m);
    refuse("tensor y.scale is missing beside", "y.weight");
    make_fp8_fp4(&m);
    set_dims(part(&m, "x.scale"), 3, 2);
    write_model(&m, FP8, 128);
    made_release(&m);
    refuse("tensor x.scale has the shape (3, 2)", "128 x 128");
}
END_TEST

/* ---- What is refused ---- */

static void refuse(const char *says, const char *names)
{
    struct weight_file *f;
    struct error e = {0};
    int rc = weight_file_open(&f, folder, false, &e);

    ck_assert_msg(rc == ERR_MODEL && strstr(e.text, says) && strstr(e.text, names) &&
                      strstr(e.text, "/packed") && !strchr(e.text, '\n'),
                  "%d '%s', wanted '%s' and '%s'", rc, e.text, says, names);
}

static void drop(struct made_file *m, const char *name)
{
    struct made_tensor *t = part(m, name);

    free(t->data);
    *t = m->t[--m->n];
}

START_TEST(missing_parts)
{
    for (int which = 0; which < GOLDEN; which++)
        for (int i = 0; i < PARTS && golden[which].parts[i]; i++) {
            struct made_file m;
            struct weight_file *f;
            struct error e = {0};
            char name[64];

            snprintf(name, sizeof name, "x%s", golden[which].parts[i]);
            make(&m, which);
            drop(&m, name);
            write_model(&m, golden[which].config, golden[which].number);
            made_release(&m);
            if (which == FP4 && i == 1) {
                refuse("is missing beside", "quant_state.bitsandbytes__nf4");
                continue;
            }
            if (strcmp(name, "x.g_idx") == 0 || strstr(name, "weight_shape")) {
                /* nothing but what the shapes say anyway */
                ck_assert_msg(weight_file_open(&f, folder, false, &e) == 0, "%s", e.text);
                weight_file_close(f);
                continue;
            }
            refuse("is missing beside", name);
        }
}
END_TEST

static void set_dims(struct made_tensor *t, int64_t d0, int64_t d1)
{
    t->dims[0] = d0;
    t->dims[1] = d1;
    t->n_dims = d1 ? 2 : 1;
}

START_TEST(damaged_parts)
{
    struct made_file m;
    int32_t group = 8;
    int64_t shape = 249;

    make(&m, ASYM);
    set_dims(part(&m, "x.qzeros"), 3, 8);
    write_model(&m, GPTQ, 32);
    refuse("tensor x.qzeros has the shape (3, 8) and type i32", "zero point for each scale");
    set_dims(part(&m, "x.qzeros"), 8, 3);
    set_dims(part(&m, "x.scales"), 6, 32);
    write_model(&m, GPTQ, 32);
    refuse("tensor x.scales has the shape (6, 32)", "each group and row");
    set_dims(part(&m, "x.scales"), 8, 24);
    write_model(&m, GPTQ, 64);
    refuse("tensor x.scales has the shape (8, 24)", "quantization_config");
    memcpy(part(&m, "x.g_idx")->data + 4 * 77, &group, 4);
    write_model(&m, GPTQ, 32);
    refuse("tensor x.g_idx puts column 77 into group 8; there are 8", "model.safetensors");
    group = -1;
    memcpy(part(&m, "x.g_idx")->data + 4 * 77, &group, 4);
    write_model(&m, GPTQ, 32);
    refuse("tensor x.g_idx puts column 77 into group -1; there are 8", "model.safetensors");
    set_dims(part(&m, "x.g_idx"), 128, 2);
    write_model(&m, GPTQ, 32);
    refuse("tensor x.g_idx has the shape (128, 2)", "a group for each column");
    made_release(&m);

    make(&m, CT);
    memcpy(part(&m, "x.weight_shape")->data + 8, &shape, 8);
    write_model(&m, INT4, 32); /* 249 columns still need 32 words a row: 8 groups fit too */
    {
        struct weight_file *f;
        struct error e = {0};

        ck_assert_msg(weight_file_open(&f, folder, false, &e) == 0, "%s", e.text);
        ck_assert_int_eq(weight_file_find(f, "x.weight")->type, DTYPE_F32);
        ck_assert_int_eq(weight_file_find(f, "x.weight")->dims[1], 249);
        weight_file_close(f);
    }
    shape = 240;
    memcpy(part(&m, "x.weight_shape")->data + 8, &shape, 8);
    write_model(&m, INT4, 32);
    refuse("tensor x.weight_packed has the shape (24, 32)", "weight_shape");
    made_release(&m);

    /* columns that were quantised in another order are nowhere without their index */
    make(&m, ACT);
    drop(&m, "x.g_idx");
    write_model(&m,
                "{\"quant_method\": \"gptq\", \"bits\": 4, \"desc_act\": true, "
                "\"group_size\": %d}",
                32);
    refuse("tensor x.g_idx is missing beside x.qweight", "model.safetensors");
    made_release(&m);

    make(&m, CT_ACT);
    set_dims(part(&m, "x.weight_zero_point"), 8, 3);
    write_model(&m, INT4_ACT, 32);
    refuse("tensor x.weight_zero_point has the shape (8, 3)", "zero point for each scale");
    set_dims(part(&m, "x.weight_zero_point"), 3, 8);
    group = 9;
    memcpy(part(&m, "x.weight_g_idx")->data + 4 * 5, &group, 4);
    write_model(&m, INT4_ACT, 32);
    refuse("tensor x.weight_g_idx puts column 5 into group 9; there are 8", "model.safetensors");
    /* a configuration that knows nothing of them: not silently the wrong numbers */
    write_model(&m, INT4, 32);
    refuse("tensor x.weight_packed is missing beside", "x.weight_");
    made_release(&m);

    make(&m, SYM8);
    set_dims(part(&m, "x.qzeros"), 3, 8);
    write_model(&m, GPTQ8, 32);
    refuse("tensor x.qzeros has the shape (3, 8) and type i32", "zero point for each scale");
    set_dims(part(&m, "x.qzeros"), 4, 6);
    write_model(&m, GPTQ, 32); /* of 4 bits, it would have twice as many columns */
    refuse("tensor x.", "model.safetensors");
    group = 4;
    memcpy(part(&m, "x.g_idx")->data + 4 * 7, &group, 4);
    write_model(&m, GPTQ8, 32);
    refuse("tensor x.g_idx puts column 7 into group 4; there are 4", "model.safetensors");
    made_release(&m);
    make(&m, CT8);
    shape = 132;
    memcpy(part(&m, "x.weight_shape")->data + 8, &shape, 8);
    write_model(&m, INT8, 32);
    refuse("tensor x.weight_packed has the shape (24, 32)", "weight_shape");
    made_release(&m);

    make(&m, OPT_NV);
    set_dims(part(&m, "x.weight_scale"), 9, 16);
    write_model(&m, MODELOPT, 16);
    refuse("tensor x.weight_scale has the shape (9, 16)", "each 16 columns");
    set_dims(part(&m, "x.weight_scale"), 18, 8);
    set_dims(part(&m, "x.weight"), 96, 12);
    write_model(&m, MODELOPT, 16);
    refuse("tensor x.weight has the shape (96, 12)", "16 columns, two a byte");
    made_release(&m);

    make(&m, NF4);
    set_dims(part(&m, "x.weight.absmax"), 35, 0);
    part(&m, "x.weight.absmax")->bytes = 35;
    write_model(&m, BNB, 0);
    refuse("tensor x.weight.absmax has the shape (35)", "a byte for each block");
    set_dims(part(&m, "x.weight.quant_state.bitsandbytes__nf4"), 9, 0);
    part(&m, "x.weight.quant_state.bitsandbytes__nf4")->bytes = 9;
    write_model(&m, BNB, 0);
    refuse("tensor x.weight: its quant_state has no readable text", "/packed");
    made_release(&m);

    make(&m, MLX_4);
    write_model(&m, MLX4, 32);
    refuse("tensor x.scales has the shape (18, 2)", "each group of the configuration");
    set_dims(part(&m, "x.biases"), 9, 4);
    write_model(&m, MLX4, 64);
    refuse("tensor x.biases has the shape (9, 4)", "a bias for each scale");
    write_model(&m, "{\"bits\": 4, \"group_size\": 64, \"x\": {\"bits\": 6, \"group_size\": %d}}",
                64);
    refuse("tensor x.weight is packed by MLX (affine), which is not read: bits 6", "/packed");
    made_release(&m);

    make(&m, BLOCKS);
    set_dims(part(&m, "x.weight_scale_inv"), 3, 2);
    write_model(&m, FP8, 128);
    refuse("tensor x.weight_scale_inv has the shape (3, 2)", "128 x 128");
    made_release(&m);

    make(&m, MX);
    part(&m, "x_scales")->dims[2] = 1;
    part(&m, "x_scales")->bytes /= 3;
    write_model(&m, MXFP4, 0);
    refuse("tensor x_scales has the shape (2, 24, 1)", "each block");
    made_release(&m);
}
END_TEST

/* Parts in two files of which one is not there. */
START_TEST(missing_shard)
{
    static const char index[] =
        "{\"weight_map\": {\"x.qweight\": \"a-00001-of-00002.safetensors\", \"x.qzeros\": "
        "\"a-00002-of-00002.safetensors\", \"x.scales\": \"a-00002-of-00002.safetensors\"}}";
    struct made_file m;
    struct weight_file *f;
    struct error e = {0};
    struct bytes b = {0};
    int rc;

    make(&m, AWQ32);
    write_config(AWQ, 32);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    put(&b, index, sizeof index - 1);
    ck_assert_int_eq(save(&b, path), 0);
    free(b.data);
    b = made_safetensors(&m, 0, 1);
    snprintf(path, sizeof path, "%s/a-00001-of-00002.safetensors", folder);
    ck_assert_int_eq(save(&b, path), 0);
    free(b.data);
    rc = weight_file_open(&f, folder, false, &e);
    ck_assert_msg(rc < 0 && strstr(e.text, "a-00002-of-00002.safetensors"), "%s", e.text);
    b = made_safetensors(&m, 1, 3);
    snprintf(path, sizeof path, "%s/a-00002-of-00002.safetensors", folder);
    ck_assert_int_eq(save(&b, path), 0);
    free(b.data);
    made_release(&m);
    ck_assert_msg(weight_file_open(&f, folder, false, &e) == 0, "%s", e.text);
    ck_assert_ptr_nonnull(weight_file_find(f, "x.weight"));
    weight_file_close(f);
}
END_TEST

/* Scales that no F16 number is, and columns that no blocks of 32 hold, become floats. */
START_TEST(what_no_block_holds)
{
    struct made_file m;
    struct weight_file *f;
    struct error e = {0};
    float *want = golden_matrix(CT);
    const struct tensor_view *t;
    uint16_t tiny = 0x2f01; /* about 1e-10, as BF16 */
    float got[256];

    make(&m, CT);
    memcpy(part(&m, "x.weight_scale")->data, &tiny, 2);
    write_model(&m, INT4, 32);
    made_release(&m);
    ck_assert_msg(weight_file_open(&f, folder, false, &e) == 0, "%s", e.text);
    t = weight_file_find(f, "x.weight");
    ck_assert_int_eq(t->type, DTYPE_F32);
    packed_values(t, 1, got);
    check_row(got, want + 256, 256, "beside a tiny scale", 1);
    packed_values(t, 0, got);
    for (int c = 0; c < 32; c++)
        ck_assert(got[c] == 0.0f || (got[c] > -1e-8f && got[c] < 1e-8f));
    free(want);
    weight_file_close(f);
}
END_TEST

/* Groups of other sizes than their scales say: no order puts 32 of one together. */
START_TEST(uneven_groups)
{
    struct made_file m;
    struct weight_file *f;
    struct error e = {0};
    float *want = golden_matrix(ACT);
    const struct tensor_view *t;
    int32_t *group, was;
    float got[256];

    make(&m, ACT);
    group = (int32_t *)(void *)part(&m, "x.g_idx")->data;
    was = group[5];
    group[5] = (was + 1) % 8;
    write_model(&m, GPTQ, 32);
    made_release(&m);
    ck_assert_msg(weight_file_open(&f, folder, false, &e) == 0, "%s", e.text);
    t = weight_file_find(f, "x.weight");
    ck_assert_int_eq(t->type, DTYPE_F32);
    ck_assert_ptr_null(t->packed->order);
    packed_values(t, 3, got);
    got[5] = want[3 * 256 + 5]; /* by another scale now */
    check_row(got, want + 3 * 256, 256, "uneven groups", 3);
    free(want);
    weight_file_close(f);
}
END_TEST

static const struct {
    const char *config, *says;
} unknown[] = {
    {"{\"quant_method\": \"exl3\", \"x\": %d}", "exl3"},
    {"{\"x\": %d}", "an unnamed method"},
    {"{\"quant_method\": \"gptq\", \"bits\": 3, \"x\": %d}", "gptq, which is not read: bits 3"},
    {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, \"checkpoint_format\": "
     "\"marlin\", \"x\": %d}",
     "checkpoint_format marlin"},
    {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 128, \"dynamic\": "
     "{\"-:.*gate$\": {}, \"+:.*down.*\": {\"bits\": %d}}}",
     "other bits by dynamic +:.*down.*"},
    {"{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": -%d}", "group_size -8"},
    {"{\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemv\", \"x\": %d}", "version gemv"},
    {"{\"quant_method\": \"fp8\", \"weight_block_size\": [64, %d]}", "weight_block_size 64"},
    {"{\"quant_method\": \"fp8\", \"fmt\": \"e5m2\", \"x\": %d}", "fmt e5m2"},
    {"{\"quant_method\": \"compressed-tensors\", \"format\": \"mixed-precision\", \"x\": %d}",
     "format mixed-precision"},
    {NVFP4_CT, "group_size 8"},
    {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"W4A16_AWQ\", \"x\": %d}",
     "quant_algo W4A16_AWQ"},
    {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", "
     "\"quantized_layers\": {\"x\": {\"quant_algo\": \"INT4_AWQ\", \"group_size\": %d}}}",
     "quant_algo INT4_AWQ"},
    {"{\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true, \"x\": %d}", "load_in_8bit"},
    {"{\"bits\": 3, \"group_size\": 64, \"x\": %d}", "bits 3"},
    {"{\"bits\": 4, \"group_size\": 16, \"x\": %d}", "group_size 16"},
    {"{\"bits\": 8, \"mode\": \"mxfp8\", \"group_size\": 32, \"x\": %d}", "mode mxfp8"},
    {MXFP4_CT, "group_size 8"},
    {"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", \"x\": %d}",
     "no config_groups"},
    {"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
     "\"config_groups\": {\"g\": {\"weights\": {\"num_bits\": 2, \"type\": \"int\"}}}, \"x\": %d}",
     "num_bits 2"},
    {"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
     "\"config_groups\": {\"g\": {\"weights\": {\"num_bits\": 4, \"symmetric\": true, "
     "\"group_size\": 32}}, \"h\": {\"weights\": {\"num_bits\": %d, \"symmetric\": true, "
     "\"group_size\": 32}}}}",
     "other num_bits in some config_groups"},
    {"{\"quant_method\": \"compressed-tensors\", \"format\": \"int-quantized\", "
     "\"config_groups\": {\"g\": {\"weights\": {\"num_bits\": %d, \"type\": \"int\"}}}}",
     "format int-quantized"},
    {"{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "
     "\"config_groups\": {\"g\": {\"weights\": {\"num_bits\": %d, \"type\": \"float\", "
     "\"symmetric\": false}}}}",
     "asymmetric"},
    {"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
     "\"config_groups\": {\"g\": {\"weights\": {\"num_bits\": 4, \"symmetric\": true, "
     "\"group_size\": 32}}, \"h\": {\"weights\": {\"num_bits\": 4, \"symmetric\": false, "
     "\"group_size\": 32}}}, \"x\": %d}",
     "some config_groups alone"},
    {"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
     "\"config_groups\": {\"g\": {\"weights\": {\"num_bits\": 4, \"symmetric\": true, "
     "\"actorder\": \"column\", \"x\": %d}}}}",
     "actorder column"},
};

START_TEST(unknown_schemes)
{
    struct made_file m;
    struct weight_file *f;
    struct error e = {0};

    make(&m, SYM);
    write_model(&m, unknown[_i].config, 8);
    made_release(&m);
    refuse("its weights are packed by ", unknown[_i].says);
    refuse("which is not read", unknown[_i].says);
    /* what it is can be said all the same */
    ck_assert_msg(weight_file_open(&f, folder, true, &e) == 0, "%s", e.text);
    ck_assert(weight_file_packing(f)->refused[0]);
    weight_file_close(f);
}
END_TEST

/* ---- Whole models ---- */

/* rounded: how far rounded activations move the logits at most; those of integers change the choice
 * of experts here and there. twin: the same weights in other words. */
static const struct {
    const char *folder, *golden;
    double rounded;
    const char *twin;
} models[] = {
    {"gpt_oss-mxfp4", "golden.safetensors", 1.0, NULL},
    {"gpt_oss-mxfp4", "golden-150.safetensors", 2.0, "ggufs/gpt-oss.gguf"},
    {"qwen3_moe-gptq-g128", "golden.safetensors", 0.5, NULL},
    {"qwen3_moe-gptq-g32-asym", "golden-40.safetensors", 2.5, "families/qwen3_moe-awq-g32"},
    {"qwen3_moe-gptq-g32-asym", "golden.safetensors", 0.5, "families/qwen3_moe-awq-g32"},
    {"qwen3_moe-gptq-g32-act", "golden.safetensors", 0.2, NULL},
    {"qwen3_moe-awq-g128", "golden-40.safetensors", 0.5, NULL},
    {"qwen3_moe-awq-g32", "golden.safetensors", 0.5, NULL},
    {"deepseek_v3-ct-int4", "golden.safetensors", 2.0, NULL},
    {"qwen3_moe-ct-fp8", "golden.safetensors", 0.02, NULL},
    {"qwen3_moe-fp8", "golden-40.safetensors", 0.02, NULL},
    {"qwen3_moe-fp8", "golden.safetensors", 0.02, NULL},
    {"deepseek_v3-fp8", "golden.safetensors", 0.02, NULL},
};

static struct golden_result run(const char *at, const char *golden_path, const char *kernels,
                                bool exact)
{
    struct golden g;
    struct golden_result r;
    struct engine *engine = NULL;
    struct error e = {0};
    char why[4200];

    ck_assert_msg(golden_open(&g, golden_path, why, sizeof why) == 0, "%s", why);
    ck_assert_msg(golden_engine(&engine, at, kernels, 2, -1, exact, &e) == 0, "%s", e.text);
    ck_assert_msg(golden_compare(engine, &g, &r, &e) == 0, "%s", e.text);
    engine_close(engine);
    golden_close(&g);
    printf("%s, %s%s: whole %.3g chunks %.3g steps %.3g\n", at, kernels ? kernels : "default",
           exact ? ", exact" : "", r.whole, r.chunked, r.stepped);
    return r;
}

/* Of a checkpoint's folder, here or among the shared data; NULL: nowhere, the skip is said. */
static const char *find(const char *name, const char *file)
{
    char below[200];

    snprintf(below, sizeof below, "golden/families/%s/%s", name, file);
    if (access(support_path(below), R_OK) == 0)
        return support_path(below);
    snprintf(below, sizeof below, "families/%s/%s", name, file);
    return support_shared(below);
}

START_TEST(models_match)
{
    const char *golden_path = find(models[_i].folder, models[_i].golden), *at;
    struct golden_result r, plain;
    char here[4200];

    if (!golden_path)
        return;
    snprintf(here, sizeof here, "%.*s", (int)(strrchr(golden_path, '/') - golden_path),
             golden_path);
    at = here;
    r = run(at, golden_path, NULL, true);
    ck_assert_msg(r.whole <= GOLDEN_TOLERANCE && r.chunked <= GOLDEN_TOLERANCE &&
                      r.stepped <= GOLDEN_TOLERANCE,
                  "%g %g %g", r.whole, r.chunked, r.stepped);
    ck_assert(r.greedy_agrees && r.routing_agrees);
    /* activations in blocks: the same logits by every set of kernels and chunking, near the exact
     * ones */
    r = run(at, golden_path, NULL, false);
    plain = run(at, golden_path, "scalar", false);
    ck_assert_msg(r.whole == plain.whole && r.chunked == r.whole && r.stepped == r.whole &&
                      plain.stepped == plain.whole,
                  "%a %a %a, %a %a", r.whole, r.chunked, r.stepped, plain.whole, plain.stepped);
    ck_assert_msg(r.whole <= models[_i].rounded, "%g", r.whole);
    if (models[_i].twin && (at = support_shared(models[_i].twin)))
        ck_assert(run(at, golden_path, NULL, false).whole == r.whole);
}
END_TEST

static void add(struct made_file *m, const char *stem, const char *end, enum dtype type, int64_t d0,
                int64_t d1, uint32_t fill)
{
    struct made_tensor *t = &m->t[m->n++];

    *t = (struct made_tensor){.type = type, .n_dims = 2, .dims = {d0, d1}};
    t->bytes = (size_t)(d0 * d1) * (size_t)dtype_info(type)->bytes;
    t->data = malloc(t->bytes);
    snprintf(t->name, sizeof t->name, "%s%s", stem, end);
    for (size_t i = 0; i < t->bytes; i += 4)
        memcpy(t->data + i, &fill, 4);
}

#define STEP 0.015625f /* two of them, as F16: 0x24002400 */

/* "x.weight" (in, out) as GPTQ, and what that stands for. */
static void add_turned(struct made_file *packed, struct made_file *plain, const char *name,
                       int64_t in, int64_t out)
{
    char stem[192];
    uint32_t seed = (uint32_t)(in + 7 * out), *codes;
    float *values;

    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
    add(packed, stem, ".qweight", DTYPE_I32, in / 8, out, 0);
    codes = (uint32_t *)(void *)packed->t[packed->n - 1].data;
    add(packed, stem, ".qzeros", DTYPE_I32, in / 32, out / 8, 0x77777777u);
    add(packed, stem, ".scales", DTYPE_F16, in / 32, out, 0x24002400u);
    add(plain, stem, ".weight", DTYPE_F32, in, out, 0);
    values = (float *)(void *)plain->t[plain->n - 1].data;
    for (int64_t i = 0; i < in; i++)
        for (int64_t o = 0; o < out; o++) {
            uint32_t code = (seed = seed * 1664525u + 1013904223u) >> 28;

            codes[i / 8 * out + o] |= code << 4 * (i % 8);
            values[i * out + o] = STEP * (float)((int)code - 8);
        }
}

static void copy(struct made_file *m, const struct tensor_view *t)
{
    struct made_tensor *to = &m->t[m->n++];

    *to = (struct made_tensor){.type = t->type, .n_dims = t->n_dims, .bytes = t->bytes};
    snprintf(to->name, sizeof to->name, "%s", t->name);
    memcpy(to->dims, t->dims, sizeof to->dims);
    to->data = malloc(t->bytes);
    memcpy(to->data, t->data, t->bytes);
}

static void eval_gpt2(const struct made_file *m, const char *config, float *logits)
{
    static const int ids[] = {1, 96, 37, 5, 90, 12};
    struct bytes b = made_safetensors(m, 0, m->n), text = {0};
    struct engine *g;
    struct error e = {0};

    snprintf(folder, sizeof folder, "%s/packed", support_tmpdir());
    mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ck_assert_int_eq(save(&b, path), 0);
    put_text(&text,
             "{\"model_type\": \"gpt2\", \"n_ctx\": 64, \"n_embd\": 32, \"n_head\": 4, "
             "\"n_layer\": 3, \"n_positions\": 64, \"vocab_size\": 97%s}",
             config);
    snprintf(path, sizeof path, "%s/config.json", folder);
    ck_assert_int_eq(save(&text, path), 0);
    ck_assert_msg(golden_engine(&g, folder, NULL, 1, -1, true, &e) == 0, "%s", e.text);
    ck_assert_msg(engine_eval(g, ids, 6, logits, false, &e) == 0, "%s", e.text);
    engine_close(g);
    free(b.data);
    free(text.data);
}

/* A family whose matrices lie (in, out): GPTQ's stand for (out, in) in it as anywhere. */
START_TEST(matrices_of_transposed_families)
{
    struct made_file *m[2] = {calloc(1, sizeof **m), calloc(1, sizeof **m)};
    struct weight_file *f;
    struct error e = {0};
    float logits[2][97];

    ck_assert(weight_file_open(&f, support_path("golden/families/gpt2"), false, &e) == 0);
    for (size_t i = 0; i < weight_file_count(f); i++) {
        const struct tensor_view *t = weight_file_at(f, i);

        if (strstr(t->name, ".c_") && t->n_dims == 2) {
            add_turned(m[0], m[1], t->name, t->dims[0], t->dims[1]);
        } else {
            copy(m[0], t);
            copy(m[1], t);
        }
    }
    weight_file_close(f);
    eval_gpt2(m[0],
              ", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
              "\"group_size\": 32}",
              logits[0]);
    eval_gpt2(m[1], "", logits[1]);
    ck_assert_mem_eq(logits[0], logits[1], sizeof *logits);
    for (int k = 0; k < 2; k++) {
        made_release(m[k]);
        free(m[k]);
    }
}
END_TEST

/* ---- Eight bits: a checkpoint of four written anew ---- */

/* A tensor of the checkpoint by the name of its matrix. */
static const struct tensor_view *beside(const struct weight_file *f, const char *qweight,
                                        const char *part)
{
    char name[200];

    snprintf(name, sizeof name, "%.*s%s", (int)(strlen(qweight) - strlen(".qweight")), qweight,
             part);
    return weight_file_find(f, name);
}

static struct made_tensor *room(struct made_file *m, const char *qweight, const char *part,
                                enum dtype type, int64_t d0, int64_t d1)
{
    char stem[192];

    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(qweight) - strlen(".qweight")), qweight);
    add(m, stem, part, type, d0, d1, 0);
    return &m->t[m->n - 1];
}

/* Code of column c, row r of GPTQ's words of four bits: 8 above the value. */
static uint32_t code4(const struct tensor_view *t, int64_t c, int64_t r)
{
    uint32_t word;

    memcpy(&word, (const uint8_t *)t->data + 4 * (c / 8 * t->dims[1] + r), 4);
    return word >> 4 * (c % 8) & 15;
}

/* The same values 128 above: GPTQ's words of eight bits. */
static void add_gptq8(struct made_file *m, const struct weight_file *f, const struct tensor_view *t)
{
    int64_t cols = 8 * t->dims[0], rows = t->dims[1],
            groups = beside(f, t->name, ".scales")->dims[0];
    uint8_t *to = room(m, t->name, ".qweight", DTYPE_I32, cols / 4, rows)->data;
    struct made_tensor *zeros;

    for (int64_t c = 0; c < cols; c++)
        for (int64_t r = 0; r < rows; r++)
            to[4 * (c / 4 * rows + r) + c % 4] = (uint8_t)(code4(t, c, r) + 120);
    zeros = room(m, t->name, ".qzeros", DTYPE_I32, groups, rows / 4);
    memset(zeros->data, 127, zeros->bytes); /* less one, as this version of the format has it */
    copy(m, beside(f, t->name, ".scales"));
    copy(m, beside(f, t->name, ".g_idx"));
}

/* The same as compressed-tensors has it (w8a16): rows by rows, scales too. */
static void add_w8a16(struct made_file *m, const struct weight_file *f, const struct tensor_view *t)
{
    const struct tensor_view *scales = beside(f, t->name, ".scales"),
                             *order = beside(f, t->name, ".g_idx");
    int64_t cols = 8 * t->dims[0], rows = t->dims[1], groups = scales->dims[0],
            shape[2] = {rows, cols};
    uint8_t *to = room(m, t->name, ".weight_packed", DTYPE_I32, rows, cols / 4)->data;

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[r * cols + c] = (uint8_t)(code4(t, c, r) + 120);
    to = room(m, t->name, ".weight_scale", DTYPE_F16, rows, groups)->data;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < groups; g++)
            memcpy(to + 2 * (r * groups + g), (const uint8_t *)scales->data + 2 * (g * rows + r),
                   2);
    memcpy(room(m, t->name, ".weight_shape", DTYPE_I64, 2, 1)->data, shape, sizeof shape);
    m->t[m->n - 1].n_dims = 1;
    memcpy(room(m, t->name, ".weight_g_idx", DTYPE_I32, cols, 1)->data, order->data, order->bytes);
    m->t[m->n - 1].n_dims = 1;
}

#define W8A16                                                                          \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "      \
    "\"ignore\": [\"lm_head\", \"re:.*mlp.gate$\"], \"config_groups\": {\"group_0\": " \
    "{\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 8, \"type\": \"int\", "   \
    "\"symmetric\": true, \"strategy\": \"group\", \"group_size\": 32, \"actorder\": " \
    "\"group\"}}}}"

static const struct {
    const char *name, *config;
    void (*add)(struct made_file *m, const struct weight_file *f, const struct tensor_view *t);
} eight_bits[] = {
    {"gptq8", "{\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": 32, \"desc_act\": true}",
     add_gptq8},
    {"w8a16", W8A16, add_w8a16},
};

/* Its config.json with other settings of the packing. */
static void write_settings(const char *config, const char *packing)
{
    json_t *all = json_load_file(config, 0, NULL), *q = json_loads(packing, 0, NULL);

    ck_assert(all && q && json_object_set_new(all, "quantization_config", q) == 0);
    snprintf(path, sizeof path, "%s/config.json", folder);
    ck_assert_int_eq(json_dump_file(all, path, 0), 0);
    json_decref(all);
}

/* Parts as they lie in the file, for nothing beside it says that they are packed. */
static struct weight_file *open_parts(const char *below)
{
    struct weight_file *f;
    struct error e = {0};

    snprintf(path, sizeof path, "%s/parts.safetensors", folder);
    unlink(path);
    ck_assert_int_eq(symlink(support_path(below), path), 0);
    ck_assert_msg(weight_file_open(&f, path, false, &e) == 0, "%s", e.text);
    return f;
}

/* A whole checkpoint of eight bits, columns in act-order: the golden of its dequantised weights,
 * and the very logits of the same integers as four bits. */
START_TEST(eight_bit_models)
{
#define FOUR_BITS "golden/families/qwen3_moe-gptq-g32-act"
    struct made_file *m = calloc(1, sizeof *m);
    struct golden_result r, rounded, four;
    struct weight_file *f;
    struct bytes b;
    char golden_path[400], four_bits[400];

    snprintf(folder, sizeof folder, "%s/%s", support_tmpdir(), eight_bits[_i].name);
    mkdir(folder, 0700);
    snprintf(golden_path, sizeof golden_path, "%s", support_path(FOUR_BITS "/golden.safetensors"));
    snprintf(four_bits, sizeof four_bits, "%s", support_path(FOUR_BITS));
    f = open_parts(FOUR_BITS "/model.safetensors");
    for (size_t i = 0; i < weight_file_count(f); i++) {
        const struct tensor_view *t = weight_file_at(f, i);

        if (strstr(t->name, ".qweight"))
            eight_bits[_i].add(m, f, t);
        else if (!strstr(t->name, ".qzeros") && !strstr(t->name, ".scales") &&
                 !strstr(t->name, ".g_idx"))
            copy(m, t);
    }
    weight_file_close(f);
    unlink(path);
    b = made_safetensors(m, 0, m->n);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ck_assert_int_eq(save(&b, path), 0);
    free(b.data);
    made_release(m);
    free(m);
    write_settings(support_path(FOUR_BITS "/config.json"), eight_bits[_i].config);
    r = run(folder, golden_path, NULL, true);
    ck_assert_msg(r.whole <= GOLDEN_TOLERANCE && r.chunked <= GOLDEN_TOLERANCE &&
                      r.stepped <= GOLDEN_TOLERANCE,
                  "%g %g %g", r.whole, r.chunked, r.stepped);
    ck_assert(r.greedy_agrees && r.routing_agrees);
    rounded = run(folder, golden_path, NULL, false);
    four = run(four_bits, golden_path, NULL, false);
    ck_assert_msg(rounded.whole == four.whole && rounded.stepped == four.whole, "%a %a, %a",
                  rounded.whole, rounded.stepped, four.whole);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("packed");
    TCase *t = tcase_create("parts"), *m = tcase_create("models");

    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, open_source, close_source);
    tcase_add_loop_test(t, golden_values, 0, GOLDEN);
    tcase_add_test(t, fp8_and_fp4_of_deepseek);
    tcase_add_test(t, missing_parts);
    tcase_add_test(t, damaged_parts);
    tcase_add_test(t, missing_shard);
    tcase_add_test(t, what_no_block_holds);
    tcase_add_test(t, uneven_groups);
    tcase_add_loop_test(t, unknown_schemes, 0, (int)(sizeof unknown / sizeof *unknown));
    suite_add_tcase(s, t);
    tcase_set_timeout(m, 120);
    tcase_add_test(m, matrices_of_transposed_families);
    tcase_add_loop_test(m, eight_bit_models, 0, (int)(sizeof eight_bits / sizeof *eight_bits));
    tcase_add_loop_test(m, models_match, 0, (int)(sizeof models / sizeof *models));
    suite_add_tcase(s, m);
    return s;
}

int main(void)
{
    return support_run(suite());
}
