/* GGUF files: good ones read right, damaged ones refused with one clear line each. Run under ASan
 * and UBSan by `make test`. */
#include "engine/base/hash.h"
#include "engine/file/packed.h"
#include "engine/file/weights.h"
#include "engine/layout/pack.h"
#include "tests/build_file.h"
#include "tests/support.h"

#include <math.h>
#include <unistd.h>

static char path[512];

static const char *in_tmp(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", support_tmpdir(), name);
    return path;
}

/* A small file with every metadata type, and three tensors. */
static struct bytes sample(void)
{
    struct made_file m = {0};
    struct bytes b;
    static const uint8_t scalars[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    double f64 = 2.5;
    float data[64];

    meta_string(&m, "general.architecture", "phimoe");
    meta_u32(&m, "general.alignment", 32);
    for (uint32_t t = 0; t < 13; t++) {
        char key[32];
        uint64_t minus_two = (uint64_t)-2;
        float f32 = -1.5f;

        if (!scalars[t])
            continue;
        snprintf(key, sizeof key, "type.%u", t);
        put_string(&m.meta, key);
        put_u32(&m.meta, t);
        put(&m.meta,
            t == 6    ? (void *)&f32
            : t == 12 ? (void *)&f64
                      : (void *)&minus_two,
            scalars[t]);
        m.n_meta++;
    }
    put_string(&m.meta, "words");
    put_u32(&m.meta, 9);
    put_u32(&m.meta, 8);
    put_u64(&m.meta, 3);
    put_string(&m.meta, "one");
    put_string(&m.meta, "");
    put_string(&m.meta, "three");
    m.n_meta++;
    put_string(&m.meta, "numbers");
    put_u32(&m.meta, 9);
    put_u32(&m.meta, 5);
    put_u64(&m.meta, 2);
    put_u32(&m.meta, 5);
    put_u32(&m.meta, (uint32_t)-6);
    m.n_meta++;
    for (int i = 0; i < 64; i++)
        data[i] = (float)i;
    made_add(&m, "a", DTYPE_F32, 3, 4, 0, data);
    made_add(&m, "b.weight", DTYPE_Q8_0, 2, 64, 0, NULL);
    made_add(&m, "c", DTYPE_F16, 5, 0, 0, NULL);
    b = made_gguf(&m);
    made_release(&m);
    return b;
}

/* Opening must fail with this code and mention this text and the file. */
static void refuse(const struct bytes *b, const char *name, int code, const char *text)
{
    struct weight_file *f;
    struct error e = {0};

    ck_assert_int_eq(save(b, in_tmp(name)), 0);
    ck_assert_msg(weight_file_open(&f, path, false, &e) == code, "%s: code %d, wanted %d: %s", text,
                  e.code, code, e.text);
    ck_assert_ptr_null(f);
    ck_assert_msg(strstr(e.text, text) && strstr(e.text, name), "'%s' does not mention '%s'",
                  e.text, text);
}

START_TEST(reads_everything)
{
    struct bytes b = sample();
    struct weight_file *f;
    struct error e = {0};
    const struct tensor_view *t;
    struct meta_value v;
    float x;

    ck_assert_int_eq(save(&b, in_tmp("x.gguf")), 0);
    ck_assert_msg(weight_file_open(&f, path, false, &e) == 0, "%s", e.text);
    ck_assert_int_eq(weight_file_format(f), WEIGHT_GGUF);
    ck_assert_uint_eq(weight_file_count(f), 3);
    t = weight_file_find(f, "a");
    ck_assert_ptr_nonnull(t);
    ck_assert_int_eq(t->n_dims, 2);
    ck_assert_int_eq(t->dims[0], 3);
    ck_assert_int_eq(t->dims[1], 4);
    memcpy(&x, (const uint8_t *)t->data + 4 * 7, 4);
    ck_assert(x == 7.0f);
    ck_assert_uint_eq(weight_file_find(f, "b.weight")->bytes, 2 * 2 * 34);
    ck_assert_ptr_null(weight_file_find(f, "d"));
    for (int i = 0; i < 13; i++) {
        char key[32];
        static const int64_t want[13] = {254, -2, 65534, -2,        4294967294, -2, 0,
                                         1,   0,  0,     INT64_MAX, -2,         0};

        snprintf(key, sizeof key, "type.%d", i);
        v = weight_file_meta(f, key);
        if (i == 8 || i == 9)
            ck_assert_int_eq(v.type, META_NONE);
        else if (i == 6 || i == 12)
            ck_assert(v.type == META_FLOAT && v.f == (i == 6 ? -1.5 : 2.5));
        else
            ck_assert_msg(v.type == (i == 7 ? META_BOOL : META_INT) && v.i == want[i],
                          "type %d: %lld", i, (long long)v.i);
    }
    v = weight_file_meta(f, "words");
    ck_assert(v.type == META_ARRAY && v.len == 3);
    v = meta_at(&v, 2);
    ck_assert(v.type == META_STRING && v.len == 5 && memcmp(v.s, "three", 5) == 0);
    v = weight_file_meta(f, "numbers");
    ck_assert_int_eq(meta_at(&v, 1).i, -6);
    ck_assert_int_eq(meta_at(&v, 2).type, META_NONE);
    weight_file_close(f);
    free(b.data);
}
END_TEST

/* Cut anywhere, the file is refused: there is no byte whose loss goes unnoticed (the padding after
 * the last tensor apart). */
START_TEST(truncated_everywhere)
{
    struct bytes b = sample();
    size_t whole = b.size;

    ck_assert_int_eq(save(&b, in_tmp("cut.gguf")), 0);
    for (size_t n = whole - 32 + 10; n-- > 0;) {
        struct weight_file *f;
        struct error e = {0};
        int rc;

        ck_assert_int_eq(truncate(path, (off_t)n), 0);
        rc = weight_file_open(&f, path, false, &e);
        ck_assert_msg(rc == ERR_MODEL && strstr(e.text, "cut.gguf"), "%zu of %zu bytes: %d %s", n,
                      whole, rc, e.text);
    }
    free(b.data);
}
END_TEST

/* Writes v over the bytes that follow the n-th appearance of a text. */
static void patch(struct bytes *b, const char *after, size_t skip, const void *v, size_t n)
{
    uint8_t *p = memmem(b->data, b->size, after, strlen(after));

    ck_assert_ptr_nonnull(p);
    memcpy(p + strlen(after) + skip, v, n);
}

START_TEST(damaged_headers)
{
    struct {
        const char *after;
        size_t skip;
        uint64_t value;
        size_t bytes;
        const char *says;
    } cases[] = {
        {"GGUF", 0, 1, 4, "version 1"},
        {"GGUF", 0, 9, 4, "version 9"},
        {"GGUF", 0, 0x03000000, 4, "big-endian"},
        {"GGUF", 4, UINT64_MAX, 8, "tensors"},
        {"GGUF", 4, 1 << 20, 8, "tensors"},
        {"GGUF", 12, UINT64_MAX, 8, "metadata entries"},
        /* the rest of the metadata is read as tensors */
        {"GGUF", 12, 5, 8, ""},
        {"general.alignment", 4, 0, 4, "power of two"},
        {"general.alignment", 4, 48, 4, "power of two"},
        {"general.architecture", 0, 99, 4, "unknown type 99"},
        {"general.architecture", 4, UINT64_MAX, 8, "long"},
        {"general.architecture", 4, 1u << 20, 8, "truncated"},
        {"words", 4, 77, 4, "unknown type 77"},
        {"words", 8, UINT64_MAX, 8, "claims"},
        {"words", 8, 1u << 30, 8, "claims"},
        /* an array of arrays whose inner types are nonsense */
        {"words", 4, 9, 4, ""},
        {"numbers", 8, UINT64_MAX / 4 + 2, 8, "claims"}, /* count * 4 overflows */
        {"b.weight", 0, 0, 4, "dimensions"},
        {"b.weight", 0, 5, 4, "dimensions"},
        {"b.weight", 0, UINT32_MAX, 4, "dimensions"},
        {"b.weight", 4, 63, 8, "block"},
        {"b.weight", 4, 0, 8, "positive"},
        {"b.weight", 4, UINT64_MAX, 8, "positive"},
        {"b.weight", 12, INT64_MAX, 8, "overflow"},
        {"b.weight", 12, 1u << 20, 8, "truncated"},
        {"b.weight", 20, 16, 4, "iq2_xxs"},
        {"b.weight", 20, 12345, 4, "12345"},
        {"b.weight", 24, 33, 8, "alignment"},
        {"b.weight", 24, 0, 8, "overlap"},
        {"b.weight", 24, UINT64_MAX - 31, 8, "truncated"},
        {"b.weight", 24, 1u << 30, 8, "truncated"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes b = sample();

        patch(&b, cases[i].after, cases[i].skip, &cases[i].value, cases[i].bytes);
        refuse(&b, "bad.gguf", ERR_MODEL, cases[i].says);
        free(b.data);
    }
}
END_TEST

START_TEST(duplicates_and_surplus)
{
    struct bytes b = sample();
    struct made_file m = {0};
    struct weight_file *f;
    struct error e = {0};

    put_zeros(&b, 4096);
    refuse(&b, "long.gguf", ERR_MODEL, "follow the last tensor");
    free(b.data);
    made_add(&m, "same", DTYPE_F32, 8, 0, 0, NULL);
    made_add(&m, "same", DTYPE_F32, 8, 0, 0, NULL);
    b = made_gguf(&m);
    refuse(&b, "twice.gguf", ERR_MODEL, "tensor same is there twice");
    free(b.data);
    m.n = 1;
    meta_u32(&m, "k", 1);
    meta_u32(&m, "k", 2);
    b = made_gguf(&m);
    refuse(&b, "keys.gguf", ERR_MODEL, "key k is there twice");
    free(b.data);
    free(m.t[1].data);
    made_release(&m);

    memset(&m, 0, sizeof m); /* a vocabulary file: fine for the tokenizer, no model */
    meta_string(&m, "general.architecture", "phimoe");
    b = made_gguf(&m);
    refuse(&b, "vocab.gguf", ERR_MODEL, "no tensors");
    ck_assert_int_eq(weight_file_open(&f, path, true, &e), 0);
    weight_file_close(f);
    b.size = 0;
    refuse(&b, "empty.gguf", ERR_MODEL, "empty");
    put(&b, "\x89PNG\r\n\x1a\n0000", 12);
    refuse(&b, "picture.gguf", ERR_MODEL, "neither");
    free(b.data);
    made_release(&m);
}
END_TEST

/* Arrays in arrays, one level deeper each: an end must be put to it before the stack does. */
START_TEST(nested_arrays)
{
    struct made_file m = {0};
    struct bytes b;

    put_string(&m.meta, "deep");
    put_u32(&m.meta, 9);
    for (int i = 0; i < 100000; i++) {
        put_u32(&m.meta, 9);
        put_u64(&m.meta, 1);
    }
    put_u32(&m.meta, 4);
    put_u64(&m.meta, 0);
    m.n_meta = 1;
    made_add(&m, "t", DTYPE_F32, 8, 0, 0, NULL);
    b = made_gguf(&m);
    refuse(&b, "deep.gguf", ERR_MODEL, "nested");
    free(b.data);
    made_release(&m);
}
END_TEST

static void put_u16_meta(struct made_file *m, const char *key, uint16_t v)
{
    put_string(&m->meta, key);
    put_u32(&m->meta, 2);
    put(&m->meta, &v, 2);
    m->n_meta++;
}

static void save_part(int no, int count, int says, const char *tensor)
{
    struct made_file m = {0};
    struct bytes b;
    char name[64];

    meta_string(&m, "general.architecture", "phimoe");
    put_u16_meta(&m, "split.no", (uint16_t)says);
    put_u16_meta(&m, "split.count", (uint16_t)count);
    meta_u32(&m, "split.tensors.count", 3);
    made_add(&m, tensor, DTYPE_F32, 8, 0, 0, NULL);
    b = made_gguf(&m);
    snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", no + 1, count);
    ck_assert_int_eq(save(&b, in_tmp(name)), 0);
    free(b.data);
    made_release(&m);
}

START_TEST(split_sets)
{
    struct weight_file *f;
    struct error e = {0};

    for (int i = 0; i < 3; i++)
        save_part(i, 3, i, i == 0 ? "a" : i == 1 ? "b" : "c");
    for (int i = 1; i <= 3; i++) { /* any part may be named */
        char name[64];

        snprintf(name, sizeof name, "m-%05d-of-00003.gguf", i);
        ck_assert_msg(weight_file_open(&f, in_tmp(name), false, &e) == 0, "%s", e.text);
        ck_assert_uint_eq(weight_file_count(f), 3);
        ck_assert_ptr_nonnull(weight_file_find(f, "c"));
        weight_file_close(f);
    }
    /* so may the folder */
    ck_assert_msg(weight_file_open(&f, support_tmpdir(), false, &e) == 0, "%s", e.text);
    weight_file_close(f);
    save_part(2, 3, 1, "c"); /* a part that says it is another */
    ck_assert_int_eq(weight_file_open(&f, in_tmp("m-00001-of-00003.gguf"), false, &e), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "part 2"));
    save_part(2, 3, 2, "b"); /* a tensor in two parts */
    ck_assert_int_eq(weight_file_open(&f, path, false, &e), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "twice"));
    unlink(in_tmp("m-00003-of-00003.gguf"));
    ck_assert_int_eq(weight_file_open(&f, in_tmp("m-00001-of-00003.gguf"), false, &e), ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "m-00003-of-00003.gguf"));
}
END_TEST

/* Somebody truncates the file under an open mapping: the reader survives and is told. */
START_TEST(shrinks_while_open)
{
    struct made_file m = {0};
    struct bytes b;
    struct weight_file *f;
    struct error e = {0};
    const struct tensor_view *t;
    unsigned sum = 0;
    uint8_t *ones = malloc(1 << 20);

    memset(ones, 1, 1 << 20);
    made_add(&m, "big", DTYPE_F32, 1 << 18, 0, 0, ones);
    b = made_gguf(&m);
    ck_assert_int_eq(save(&b, in_tmp("shrink.gguf")), 0);
    ck_assert_msg(weight_file_open(&f, path, false, &e) == 0, "%s", e.text);
    ck_assert_int_eq(weight_file_check(f, &e), 0);
    ck_assert_int_eq(truncate(path, 65536), 0);
    t = weight_file_find(f, "big");
    for (size_t i = 0; i < t->bytes; i++)
        sum += ((const uint8_t *)t->data)[i];
    ck_assert_uint_lt(sum, 1 << 20);
    ck_assert_int_eq(weight_file_check(f, &e), ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "changed while it was read"));
    weight_file_close(f);
    free(b.data);
    free(ones);
    made_release(&m);
}
END_TEST

/* Any single byte changed: opening may succeed or fail, nothing worse. */
START_TEST(flipped_bytes)
{
    struct bytes b = sample();

    for (size_t i = 0; i < b.size; i++) {
        struct weight_file *f;
        struct error e = {0};
        uint8_t old = b.data[i];

        b.data[i] ^= (uint8_t)(i % 3 == 0 ? 0xff : i % 3 == 1 ? 0x80 : 0x01);
        ck_assert_int_eq(save(&b, in_tmp("flip.gguf")), 0);
        if (weight_file_open(&f, path, false, &e) == 0) {
            weight_file_hash(f);
            weight_file_close(f);
        } else {
            ck_assert_int_gt((int)strlen(e.text), 0);
        }
        b.data[i] = old;
    }
    free(b.data);
}
END_TEST

/* Rows with one scale for all their superblocks (ik_llama.cpp's types), as its own functions read
 * them (sums of the values): golden/rows has rows of 512 columns, golden/dequant of 256. */
START_TEST(rows_with_a_scale)
{
    static const struct {
        const char *at;
        uint32_t gguf;
        enum dtype shown;
        int64_t cols;
    } files[] = {{"rows/iq4_kss", 146, DTYPE_IQ4_KS, 512},
                 {"rows/iq2_ks", 145, DTYPE_IQ2_KS, 512},
                 {"dequant/iq2_ks", 145, DTYPE_IQ2_KS, 256},
                 {"dequant/iq3_ks", 156, DTYPE_IQ3_KS, 256},
                 {"dequant/iq4_ks", 144, DTYPE_IQ4_KS, 256},
                 {"dequant/iq5_ks", 152, DTYPE_IQ5_KS, 256},
                 {"dequant/iq2_kl", 157, DTYPE_IQ2_KL, 256},
                 {"dequant/iq1_kt", 158, DTYPE_IQ1_KT, 256},
                 {"dequant/iq2_kt", 153, DTYPE_IQ2_KT, 256},
                 {"rows/iq3_kt", 154, DTYPE_IQ3_KT, 512},
                 {"dequant/iq4_kt", 155, DTYPE_IQ4_KT, 256},
                 {"rows/q8_kv", 151, DTYPE_Q8_KV, 256},
                 /* and in groups */
                 {"rows/q4_0_r8", 202, DTYPE_Q4_0, 64},
                 {"rows/q8_0_r8", 208, DTYPE_Q8_0, 64},
                 {"rows/q4_k_r4", 212, DTYPE_Q4_K, 256},
                 {"rows/q5_k_r4", 213, DTYPE_Q5_K, 256},
                 {"rows/q6_k_r4", 214, DTYPE_Q6_K, 256},
                 {"rows/iq1_s_r4", 219, DTYPE_IQ1_S, 512},
                 {"rows/iq4_nl_r4", 220, DTYPE_IQ4_NL, 64},
                 {"rows/iq4_xs_r8", 223, DTYPE_IQ4_XS, 256},
                 {"rows/mxfp4_r8", 353, DTYPE_MXFP4, 64}};
    static uint8_t rows[4096], packed[4096];
    static float got[512];
    uint64_t sums[16];
    const uint64_t cols = (uint64_t)files[_i].cols;
    struct made_file m = {0};
    struct weight_file *f;
    const struct tensor_view *t;
    struct error e = {0};
    struct bytes b;
    char at[64];
    uint32_t head[2];
    FILE *golden;

    snprintf(at, sizeof at, "golden/%s.bin", files[_i].at);
    ck_assert_ptr_nonnull(golden = fopen(support_path(at), "rb"));
    ck_assert_uint_eq(fread(head, 4, 2, golden), 2);
    ck_assert(head[0] * head[1] <= sizeof rows && head[0] <= 16);
    ck_assert_uint_eq(fread(rows, head[1], head[0], golden), head[0]);
    ck_assert_uint_eq(fread(sums, 8, head[0], golden), head[0]);
    ck_assert_msg(fgetc(golden) == EOF, "%s has values: golden_sums.py", at);
    fclose(golden);
    meta_string(&m, "general.architecture", "phimoe");
    made_add(&m, "w.weight", DTYPE_F16, head[0], head[1] / 2, 0, rows);
    b = made_gguf(&m);
    patch(&b, "w.weight", 4, &cols, 8);
    patch(&b, "w.weight", 4 + 16, &files[_i].gguf, 4);
    ck_assert_int_eq(save(&b, in_tmp("rows.gguf")), 0);
    ck_assert_msg(weight_file_open(&f, path, false, &e) == 0, "%s", e.text);
    t = weight_file_find(f, "w.weight");
    ck_assert(t->type == files[_i].shown && t->packed && t->bytes == head[0] * head[1]);
    packed_rows(t, 0, 1, (int)head[0], packed);
    for (uint32_t r = 0; r < head[0]; r++) {
        packed_values(t, r, got);
        ck_assert_uint_eq(hash_bytes(HASH_START, got, cols * 4), sums[r]);
        row_to_f32(t->type, packed + r * dtype_row_bytes(t->type, (int64_t)cols), (int64_t)cols,
                   got);
        ck_assert_uint_eq(hash_bytes(HASH_START, got, cols * 4), sums[r]);
    }
    weight_file_close(f);
    b.size -= 32; /* the last row is cut */
    refuse(&b, "rows.gguf", ERR_MODEL, "truncated");
    free(b.data);
    made_release(&m);
}
END_TEST

/* Repacked types whose values' hash is that of what ik_llama.cpp's dequantize_row functions make of
 * the same bytes: numbers of a generator, but for the sign and the exponent of the `scales` F16
 * numbers at the start of each superblock of the group (negative: F32 ones at the group's). */
START_TEST(repacked_values)
{
    static const struct {
        const char *name;
        uint32_t gguf;
        enum dtype shown;
        int rows, cols, bytes, superblocks, scales;
        uint64_t hash;
    } types[] = {
        {"q6_0", 133, DTYPE_Q8_0, 1, 64, 52, 2, 1, 0x4c803aaa1dbae29a},
        {"q6_0_r4", 233, DTYPE_Q8_0, 4, 64, 52, 2, 4, 0x54febf0f6efd0405},
        {"q8_k_r8", 399, DTYPE_Q8_0, 8, 512, 516, 2, 8, 0x928931648d22f925},
        {"q8_k_r16", 397, DTYPE_Q8_0, 16, 512, 516, 2, 16, 0x8dc4ffc4fa4f17fc},
        {"q8_kv_r8", 398, DTYPE_Q8_KV, 8, 256, 260, 2, -8, 0x8f68bb9a09b5b154},
        {"q5_0_r4", 206, DTYPE_Q5_0, 4, 64, 44, 2, 4, 0x8a3829f98724cf97},
        {"q2_k_r4", 210, DTYPE_Q2_K, 4, 512, 168, 2, 8, 0x85e124b451c20ed3},
        {"q3_k_r4", 211, DTYPE_Q3_K, 4, 512, 220, 2, 4, 0xf8ce536b18bd2674},
        {"iq2_xxs_r4", 216, DTYPE_IQ2_XXS, 4, 512, 132, 2, 4, 0x671791757af298e0},
        {"iq2_xs_r4", 217, DTYPE_IQ2_XS, 4, 512, 148, 2, 4, 0x381ca4853c32b82c},
        {"iq2_s_r4", 222, DTYPE_IQ2_S, 4, 512, 164, 2, 4, 0x8535cf598ce5dcd4},
        {"iq3_xxs_r4", 218, DTYPE_IQ3_XXS, 4, 512, 196, 2, 4, 0xf68bf2a1b0804bed},
        {"iq3_s_r4", 221, DTYPE_IQ3_S, 4, 512, 220, 2, 4, 0x7cee58805f0b70b1},
        {"bf16_r16", 230, DTYPE_BF16, 16, 64, 128, 1, 0, 0xeb4d4f26cb022771},
        {"iq1_m_r4", 229, DTYPE_IQ1_M_R, 4, 512, 114, 1, 4, 0x5720ef5ed878bfdf},
    };
    static uint8_t group[16 * 516], packed[16 * 544];
    float got[512];
    const int rows = types[_i].rows;
    const size_t size = (size_t)(rows * types[_i].bytes);
    const uint64_t cols = (uint64_t)types[_i].cols, odd = cols - 1;
    uint64_t values = HASH_START, unpacked = HASH_START;
    struct made_file m = {0};
    struct weight_file *f;
    const struct tensor_view *t;
    struct error e = {0};
    struct bytes b;
    uint32_t x = 1;

    for (size_t i = 0; i < size; i++) {
        x = x * 1664525u + 1013904223u;
        group[i] = (uint8_t)(x >> 24);
    }
    for (int s = 0; s < types[_i].superblocks; s++)
        for (int k = 0; k < types[_i].scales; k++) {
            uint8_t *high = group + (size_t)s * size / (size_t)types[_i].superblocks + 2 * k + 1;

            *high = 0x18 | (*high & 3);
        }
    for (int k = 0; k < -types[_i].scales; k++)
        group[4 * k + 3] = 0x3c;
    meta_string(&m, "general.architecture", "phimoe");
    made_add(&m, "w.weight", DTYPE_F16, rows, types[_i].bytes / 2, 0, group);
    b = made_gguf(&m);
    patch(&b, "w.weight", 4, &cols, 8);
    patch(&b, "w.weight", 4 + 16, &types[_i].gguf, 4);
    ck_assert_int_eq(save(&b, in_tmp("repacked.gguf")), 0);
    ck_assert_msg(weight_file_open(&f, path, false, &e) == 0, "%s", e.text);
    t = weight_file_find(f, "w.weight");
    ck_assert(t->type == types[_i].shown && t->packed && t->bytes == size);
    packed_rows(t, 0, 1, rows, packed);
    for (int r = 0; r < rows; r++) {
        packed_values(t, r, got);
        values = hash_bytes(values, got, cols * 4);
        row_to_f32(t->type, packed + (size_t)r * dtype_row_bytes(t->type, (int64_t)cols),
                   (int64_t)cols, got);
        unpacked = hash_bytes(unpacked, got, cols * 4);
    }
    ck_assert_msg(values == types[_i].hash && unpacked == types[_i].hash, "%s", types[_i].name);
    weight_file_close(f);
    patch(&b, "w.weight", 4, &odd, 8);
    ck_assert_int_eq(save(&b, in_tmp("repacked.gguf")), 0);
    ck_assert_int_eq(weight_file_open(&f, path, false, &e), ERR_MODEL);
    b.size -= 32; /* the last row is cut */
    patch(&b, "w.weight", 4, &cols, 8);
    refuse(&b, "repacked.gguf", ERR_MODEL, "truncated");
    free(b.data);
    made_release(&m);
}
END_TEST

/* NVFP4 with a factor beside it, as llama.cpp converts ModelOpt's folders: one, or one a matrix. */
START_TEST(blocks_with_a_factor)
{
    const float factors[2] = {0.5f, -0.75f};
    static uint8_t blocks[36 * 64], packed[40 * 64];
    static float want[64 * 64], got[64];
    const int64_t n = _i ? 2 : 1;
    struct made_file m = {0};
    struct weight_file *f;
    const struct tensor_view *t;
    struct error e = {0};
    struct bytes b;
    uint32_t head[2];
    int64_t rows;
    FILE *golden;

    ck_assert_ptr_nonnull(golden = fopen(support_path("golden/dequant/nvfp4.bin"), "rb"));
    ck_assert_uint_eq(fread(head, 4, 2, golden), 2);
    ck_assert(head[1] == 36 && head[0] <= 64 && head[0] >= 4);
    ck_assert_uint_eq(fread(blocks, 36, head[0], golden), head[0]);
    fclose(golden);
    /* which check_dtype compares with golden sums */
    row_to_f32(DTYPE_NVFP4, blocks, 64 * (int64_t)head[0], want);
    rows = head[0] / n;
    meta_string(&m, "general.architecture", "phimoe");
    made_add(&m, "w.weight", DTYPE_NVFP4, _i ? n : rows, _i ? rows : 64, _i ? 64 : 0, blocks);
    made_add(&m, "w.scale", DTYPE_F32, n, 0, 0, factors);
    made_add(&m, "w.input_scale", DTYPE_F32, 1, 0, 0, factors);
    made_add(&m, "a.scale", DTYPE_F32, 1, 0, 0, factors);
    b = made_gguf(&m);
    ck_assert_int_eq(save(&b, in_tmp("factor.gguf")), 0);
    ck_assert_msg(weight_file_open(&f, path, false, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(weight_file_count(f), 2); /* another tensor's .scale stays one */
    t = weight_file_find(f, "w.weight");
    ck_assert(t->type == DTYPE_NVFP4_S && t->packed && !weight_file_find(f, "w.scale"));
    for (int64_t r = 0; r < n * rows; r++) {
        for (int c = 0; c < 64; c++)
            want[64 * r + c] *= factors[r / rows];
        packed_values(t, r, got);
        for (int c = 0; c < 64; c++)
            ck_assert_msg(fabsf(got[c] - want[64 * r + c]) <= 1e-7f * fabsf(got[c]), "%a, not %a",
                          (double)got[c], (double)want[64 * r + c]);
        packed_rows(t, r, 1, 1, packed);
        row_to_f32(t->type, packed, 64, want + 64 * r);
        ck_assert_mem_eq(got, want + 64 * r, sizeof got);
    }
    weight_file_close(f);
    made_release(&m);
    free(b.data);
}
END_TEST

/* Four rows interleaved, as ik_llama.cpp repacked the blocks of golden/dequant. */
START_TEST(rows_in_groups)
{
    static const struct {
        const char *name;
        uint32_t gguf;
        enum dtype shown;
    } files[] = {{"iq2_k", 337, DTYPE_IQ2_K},   {"iq3_k", 338, DTYPE_IQ3_K},
                 {"iq4_k", 339, DTYPE_IQ4_K},   {"iq5_k", 340, DTYPE_IQ5_K},
                 {"iq4_ks", 344, DTYPE_IQ4_KS}, {"iq5_ks", 352, DTYPE_IQ5_KS}};
    static uint8_t plain[1024], grouped[1024], packed[1024];
    static float values[1024], got[256];
    const uint64_t cols = 256;
    struct made_file m = {0};
    struct weight_file *f;
    const struct tensor_view *t;
    struct error e = {0};
    struct bytes b;
    char at[64];
    uint32_t head[2], more[2];
    FILE *golden;

    snprintf(at, sizeof at, "golden/dequant/%s.bin", files[_i].name);
    ck_assert_ptr_nonnull(golden = fopen(support_path(at), "rb"));
    ck_assert_uint_eq(fread(head, 4, 2, golden), 2);
    ck_assert(head[0] * head[1] <= sizeof plain && head[0] <= 4);
    ck_assert_uint_eq(fread(plain, head[1], head[0], golden), head[0]);
    fclose(golden);
    row_to_f32(files[_i].shown, plain, 256 * (int64_t)head[0], values); /* see check_dtype */
    snprintf(at, sizeof at, "golden/rows/%s_r4.bin", files[_i].name);
    ck_assert_ptr_nonnull(golden = fopen(support_path(at), "rb"));
    ck_assert_uint_eq(fread(more, 4, 2, golden), 2);
    ck_assert(more[0] == 4 && more[1] == head[1]);
    ck_assert_uint_eq(fread(grouped, more[1], 4, golden), 4);
    fclose(golden);
    meta_string(&m, "general.architecture", "phimoe");
    made_add(&m, "w.weight", DTYPE_F16, 4, head[1] / 2, 0, grouped);
    b = made_gguf(&m);
    patch(&b, "w.weight", 4, &cols, 8);
    patch(&b, "w.weight", 4 + 16, &files[_i].gguf, 4);
    ck_assert_int_eq(save(&b, in_tmp("groups.gguf")), 0);
    ck_assert_msg(weight_file_open(&f, path, false, &e) == 0, "%s", e.text);
    t = weight_file_find(f, "w.weight");
    ck_assert(t->type == files[_i].shown && t->packed);
    packed_rows(t, 0, 1, 4, packed);
    for (uint32_t r = 0; r < 4; r++) {
        packed_values(t, r, got);
        ck_assert_mem_eq(got, values + r % head[0] * 256, sizeof got);
        ck_assert_mem_eq(packed + r * head[1], plain + r % head[0] * head[1], head[1]);
    }
    weight_file_close(f);
    free(b.data);
    made_release(&m);
    memset(&m, 0, sizeof m);
    meta_string(&m, "general.architecture", "phimoe");
    made_add(&m, "w.weight", DTYPE_F16, 3, head[1] / 2, 0, grouped);
    b = made_gguf(&m);
    patch(&b, "w.weight", 4, &cols, 8);
    patch(&b, "w.weight", 4 + 16, &files[_i].gguf, 4);
    refuse(&b, "groups.gguf", ERR_MODEL, "lies in groups of 4 rows, but has 3");
    free(b.data);
    made_release(&m);
}
END_TEST

/* Groups of 128 under the type id of Q2_0, whose groups have 64. */
START_TEST(wide_groups)
{
    const uint64_t cols = 256;
    const uint32_t id = 42;
    struct made_file m = {0};
    struct bytes b;

    meta_string(&m, "general.architecture", "phimoe");
    made_add(&m, "w.weight", DTYPE_F16, 8, 34, 0, NULL); /* 8 rows of two blocks of 34 bytes */
    made_add(&m, "x", DTYPE_F32, 8, 0, 0, NULL);
    b = made_gguf(&m);
    patch(&b, "w.weight", 4, &cols, 8);
    patch(&b, "w.weight", 4 + 16, &id, 4);
    refuse(&b, "wide.gguf", ERR_MODEL, "w.weight has Q2_0 in groups of 128");
    free(b.data);
    made_release(&m);
}
END_TEST

/* Pieces cut by bytes: said so, and what joins them. */
START_TEST(pieces)
{
    static const char *const names[][2] = {{"m.Q4_K_M.gguf.part1of3", "m.Q4_K_M.gguf.part'*"},
                                           {"m.gguf-split-a", "m.gguf-split-'*"},
                                           {"m.gguf.part-aa", "m.gguf.part-'*"},
                                           {"m.gguf.001", "m.gguf.'*"}};
    struct bytes b = sample();

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        refuse(&b, names[i][0], ERR_MODEL, names[i][1]);
        refuse(&b, names[i][0], ERR_MODEL, "join all of them");
    }
    free(b.data);
}
END_TEST

START_TEST(demo_file)
{
    struct weight_file *f;
    struct error e = {0};
    const char *p = support_demo();
    struct meta_value v;

    ck_assert_msg(weight_file_open(&f, p, false, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(weight_file_count(f), 133);
    v = weight_file_meta(f, "tokenizer.ggml.tokens");
    ck_assert_uint_eq(v.len, 4096);
    v = meta_at(&v, 4094);
    ck_assert(v.len == 7 && memcmp(v.s, "<|end|>", 7) == 0);
    weight_file_close(f);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("gguf");
    TCase *t = tcase_create("files");

    tcase_add_test(t, reads_everything);
    tcase_add_test(t, truncated_everywhere);
    tcase_add_test(t, damaged_headers);
    tcase_add_test(t, duplicates_and_surplus);
    tcase_add_test(t, nested_arrays);
    tcase_add_test(t, split_sets);
    tcase_add_test(t, shrinks_while_open);
    tcase_add_test(t, flipped_bytes);
    tcase_add_loop_test(t, rows_with_a_scale, 0, 21);
    tcase_add_loop_test(t, rows_in_groups, 0, 6);
    tcase_add_loop_test(t, repacked_values, 0, 14);
    tcase_add_loop_test(t, blocks_with_a_factor, 0, 2);
    tcase_add_test(t, wide_groups);
    tcase_add_test(t, pieces);
    tcase_add_test(t, demo_file);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
