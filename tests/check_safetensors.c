/* safetensors files and Hugging Face folders: good ones read right, damaged ones refused with one
 * clear line each. */
#include "engine/file/weights.h"
#include "tests/build_file.h"
#include "tests/support.h"

#include <sys/stat.h>
#include <unistd.h>

static char path[512];

static const char *in_tmp(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", support_tmpdir(), name);
    return path;
}

static void write_text(const char *name, const char *text)
{
    struct bytes b = {0};

    put(&b, text, strlen(text));
    ck_assert_int_eq(save(&b, in_tmp(name)), 0);
    free(b.data);
}

/* A file whose header is this text; data bytes follow. */
static void write_header(const char *name, const char *header, size_t data)
{
    struct bytes b = {0};

    put_u64(&b, strlen(header));
    put(&b, header, strlen(header));
    put_zeros(&b, data);
    ck_assert_int_eq(save(&b, in_tmp(name)), 0);
    free(b.data);
}

static void refuse(const char *at, int code, const char *says)
{
    struct weight_file *f;
    struct error e = {0};
    int rc = weight_file_open(&f, at, false, &e);

    ck_assert_msg(rc == code && strstr(e.text, says), "%s: %d '%s', wanted %d '%s'", at, rc, e.text,
                  code, says);
}

START_TEST(damaged_headers)
{
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 15, "truncated"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 17, "appended"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,12]}}", 16, "span 12"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]}}", 16, "rising"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[-16,0]}}", 16, "rising"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0.0,16.0]}}", 16, "rising"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", 16, "missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]}}", 16, "missing"},
        {"{\"a\":{\"shape\":[4],\"data_offsets\":[0,16]}}", 16, "missing"},
        {"{\"a\":5}", 0, "missing"},
        {"{\"a\":{\"dtype\":\"F8_E5M2\",\"shape\":[16],\"data_offsets\":[0,16]}}", 16, "F8_E5M2"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", 16, "positive"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "positive"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4.5],\"data_offsets\":[0,16]}}", 16, "integer"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,16]}}",
         16, "overflow"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,2,2],\"data_offsets\":[0,16]}}",
         16, "overflow"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,16]}}", 16,
         "not an integer"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,4],\"data_offsets\":[0,16]}}", 16,
         "7 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"a\":{\"dtype\":"
         "\"F32\",\"shape\":[4],\"data_offsets\":[16,32]}}",
         32, "duplicate"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"b\":{\"dtype\":"
         "\"F32\",\"shape\":[4],\"data_offsets\":[8,24]}}",
         24, "overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"b\":{\"dtype\":"
         "\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
         16, "overlap"},
        {"{\"a\":{\"dtype\":\"F32\"", 0, "JSON"},
        {"{\"a\xff\":1}", 0, "JSON"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_header("model.safetensors", cases[i].header, cases[i].data);
        refuse(path, ERR_MODEL, cases[i].says);
    }
}
END_TEST

START_TEST(header_length_lies)
{
    struct bytes b = {0};
    struct error e = {0};
    struct weight_file *f;

    put_u64(&b, 1u << 30);
    put(&b, "{}", 2);
    ck_assert_int_eq(save(&b, in_tmp("model.safetensors")), 0);
    refuse(path, ERR_MODEL, "claims 1073741824 bytes");
    memset(b.data, 0xff, 8);
    ck_assert_int_eq(save(&b, in_tmp("model.safetensors")), 0);
    ck_assert_int_eq(weight_file_open(&f, path, false, &e), ERR_MODEL);
    b.size = 5;
    ck_assert_int_eq(save(&b, in_tmp("model.safetensors")), 0);
    ck_assert_int_eq(weight_file_open(&f, support_tmpdir(), false, &e), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "truncated"));
    free(b.data);
}
END_TEST

/* 2,000 levels of brackets: the parser's own limit answers, not the stack. */
START_TEST(deep_header)
{
    struct bytes b = {0};
    int n = 200000;

    put(&b, "{\"a\":", 5);
    for (int i = 0; i < n; i++)
        put(&b, "[", 1);
    put_zeros(&b, 1);
    write_header("model.safetensors", (char *)b.data, 0);
    refuse(path, ERR_MODEL, "JSON");
    free(b.data);
}
END_TEST

START_TEST(truncated_everywhere)
{
    struct made_file m = {0};
    struct bytes b;

    made_add(&m, "one", DTYPE_F32, 2, 3, 0, NULL);
    made_add(&m, "two", DTYPE_BF16, 5, 0, 0, NULL);
    b = made_safetensors(&m, 0, m.n);
    ck_assert_int_eq(save(&b, in_tmp("model.safetensors")), 0);
    for (size_t n = b.size; n-- > 0;) {
        ck_assert_int_eq(truncate(path, (off_t)n), 0);
        refuse(path, ERR_MODEL, "model.safetensors");
    }
    free(b.data);
    made_release(&m);
}
END_TEST

static void write_shards(const char *index)
{
    struct made_file m = {0};
    struct bytes b;

    made_add(&m, "a", DTYPE_F32, 4, 0, 0, NULL);
    made_add(&m, "b", DTYPE_F32, 4, 0, 0, NULL);
    made_add(&m, "c", DTYPE_F32, 4, 0, 0, NULL);
    b = made_safetensors(&m, 0, 2);
    ck_assert_int_eq(save(&b, in_tmp("m-1.safetensors")), 0);
    free(b.data);
    b = made_safetensors(&m, 2, 3);
    ck_assert_int_eq(save(&b, in_tmp("m-2.safetensors")), 0);
    free(b.data);
    made_release(&m);
    write_text("model.safetensors.index.json", index);
}

START_TEST(shards)
{
    static const struct {
        const char *index;
        int code;
        const char *says;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-1.safetensors\",\"c\":\"m-1."
         "safetensors\"}}",
         ERR_MODEL, "tensor c is said to be in"},
        {"{\"weight_map\":{\"a\":\"m-1.safetensors\",\"d\":\"m-2.safetensors\"}}", ERR_MODEL,
         "tensor d"},
        {"{\"weight_map\":{\"a\":\"../m-1.safetensors\"}}", ERR_MODEL, "same folder"},
        {"{\"weight_map\":{\"a\":\"/etc/x.safetensors\"}}", ERR_MODEL, "same folder"},
        {"{\"weight_map\":{\"a\":\"sub/m-1.safetensors\"}}", ERR_MODEL, "same folder"},
        {"{\"weight_map\":{\"a\":\"..\"}}", ERR_MODEL, "same folder"},
        {"{\"weight_map\":{\"a\":\"model.safetensors.index.json\"}}", ERR_MODEL, "same folder"},
        {"{\"weight_map\":{\"a\":7}}", ERR_MODEL, "not a string"},
        {"{\"weight_map\":{}}", ERR_MODEL, "no weight_map"},
        {"{\"weight_map\":[]}", ERR_MODEL, "no weight_map"},
        {"[]", ERR_MODEL, "no weight_map"},
        {"{", ERR_MODEL, "JSON"},
        {"", ERR_MODEL, "JSON"},
        {"{\"weight_map\":{\"a\":\"m-3.safetensors\"}}", ERR_IO, "m-3.safetensors"},
    };
    struct weight_file *f;
    struct error e = {0};

    write_shards("{\"metadata\":{},\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-1."
                 "safetensors\",\"c\":\"m-2.safetensors\"}}");
    ck_assert_msg(weight_file_open(&f, support_tmpdir(), false, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(weight_file_count(f), 3);
    ck_assert_ptr_nonnull(weight_file_find(f, "c"));
    weight_file_close(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_shards(cases[i].index);
        refuse(support_tmpdir(), cases[i].code, cases[i].says);
    }
    /* A shard that is the index again (a cycle), by a symbolic link. */
    unlink(in_tmp("m-2.safetensors"));
    ck_assert_int_eq(symlink("model.safetensors.index.json", path), 0);
    write_text("model.safetensors.index.json", "{\"weight_map\":{\"c\":\"m-2.safetensors\"}}");
    refuse(support_tmpdir(), ERR_MODEL, "m-2.safetensors");
    unlink(in_tmp("m-2.safetensors"));
    ck_assert_int_eq(symlink("m-2.safetensors", path), 0);
    refuse(support_tmpdir(), ERR_IO, "m-2.safetensors");
    /* A shard that is no file. */
    unlink(path);
    ck_assert_int_eq(mkfifo(in_tmp("m-2.safetensors"), 0600), 0);
    refuse(support_tmpdir(), ERR_IO, "not a regular file");
}
END_TEST

START_TEST(folders)
{
    struct weight_file *f;
    struct error e = {0};
    struct meta_value v;
    size_t bytes;
    const char *dir = support_tmpdir();

    refuse(dir, ERR_MODEL, "holds no model");
    refuse("/nonexistent/model", ERR_IO, "cannot open");
    write_text("config.json", "{\"hidden_size\": 32, \"rope_scaling\": {\"f\": [1.5, 2]}, \"n\": "
                              "null, \"t\": true, \"s\": \"x\"}");
    write_text("tokenizer.json", "{}");
    ck_assert_msg(weight_file_open(&f, dir, true, &e) == 0, "%s", e.text); /* tokenizer only */
    ck_assert_uint_eq(weight_file_count(f), 0);
    ck_assert_ptr_nonnull(weight_file_aux(f, "tokenizer.json", &bytes));
    ck_assert_uint_eq(bytes, 2);
    ck_assert_ptr_null(weight_file_aux(f, "../config.json", &bytes));
    v = weight_file_meta(f, "rope_scaling.f");
    ck_assert(v.type == META_ARRAY && meta_at(&v, 0).f == 1.5 && meta_at(&v, 1).i == 2);
    ck_assert_int_eq(weight_file_meta(f, "n").type, META_NONE);
    ck_assert_int_eq(weight_file_meta(f, "t").type, META_BOOL);
    ck_assert_int_eq(weight_file_meta(f, "hidden_size").i, 32);
    ck_assert_int_eq(weight_file_meta(f, "config.json:hidden_size").i, 32);
    ck_assert_int_eq(weight_file_meta(f, "generation_config.json:x").type, META_NONE);
    weight_file_close(f);
    ck_assert_msg(weight_file_open(&f, in_tmp("tokenizer.json"), true, &e) == 0, "%s", e.text);
    weight_file_close(f);
    write_header("one.safetensors",
                 "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    write_text("stray.gguf", "GGUF"); /* beside them it means nothing, wherever it is listed */
    write_text("a.gguf", "GGUF");
    ck_assert_msg(weight_file_open(&f, dir, false, &e) == 0, "%s", e.text);
    ck_assert_ptr_nonnull(weight_file_find(f, "a"));
    weight_file_close(f);
    write_header("two.safetensors",
                 "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    refuse(dir, ERR_MODEL, "several");
    write_text("config.json", "{\"hidden_size\": 32,}");
    refuse(dir, ERR_MODEL, "config.json: not valid JSON: line 1");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("safetensors");
    TCase *t = tcase_create("files");

    tcase_add_test(t, damaged_headers);
    tcase_add_test(t, header_length_lies);
    tcase_add_test(t, deep_header);
    tcase_add_test(t, truncated_everywhere);
    tcase_add_test(t, shards);
    tcase_add_test(t, folders);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
