/* PoCL gives each work-group its own local arrays only where the body of the kernel names them. If
 * LLVM puts one into the body of a function that is not inlined, it stays a variable of the
 * process, KERNEL.ARRAY, which groups on other threads write to: results are wrong once in a
 * thousand launches. Its name in the compiled library says so at once. Skips where there is no
 * PoCL. */
#include "engine/run/engine.h"
#include "gpu/opencl.h"
#include "gpu/driver/tuning.h"
#include "tests/support.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const struct device_ops *const backends[] = {&opencl_device_ops, &cpu_device_ops, NULL};
static time_t since;
static int libraries;
static char found[8192];

/* n bytes; zeros behind the end of one that another suite's PoCL is still writing. */
static char *read_all(const char *path, size_t n)
{
    FILE *f = fopen(path, "rb");
    char *bytes = calloc(1, n + 1);

    ck_assert_ptr_nonnull(bytes);
    if (f) {
        (void)!fread(bytes, 1, n, f);
        fclose(f);
    }
    return bytes;
}

static bool is_file(const char *ending)
{
    static const char *const all[] = {".so", ".o", ".c", ".cl", ".bc"};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(ending, all[i]))
            return true;
    return false;
}

/* Names of symbols lie between zeros. */
static void search(const char *path, const char *kernel, size_t length, size_t n)
{
    char *bytes = read_all(path, n);

    libraries++;
    for (size_t i = 1; i + length + 1 < n; i++)
        if (!bytes[i - 1] && !memcmp(bytes + i, kernel, length) && bytes[i + length] == '.' &&
            !is_file(bytes + i + length) && strlen(found) + 100 < sizeof found)
            snprintf(found + strlen(found), 100, " %.80s", bytes + i);
    free(bytes);
}

/* .../PROGRAM/KERNEL/SIZES/KERNEL.so, if the program was used by this run: its file last_accessed
 */
static int visit(const char *path, const struct stat *st, int type, struct FTW *at)
{
    const char *name = path + at->base, *dot = strrchr(name, '.');
    char program[4200];
    struct stat used;

    if (type != FTW_F || !dot || strcmp(dot, ".so") != 0)
        return 0;
    snprintf(program, sizeof program, "%s", path);
    for (int i = 0; i < 3; i++)
        *strrchr(program, '/') = 0;
    strcat(program, "/last_accessed");
    if (stat(program, &used) == 0 && used.st_mtime >= since)
        search(path, name, (size_t)(dot - name), (size_t)st->st_size);
    return 0;
}

static void run(int shape)
{
    static const struct opencl_tuning none;
    struct opencl_tuning t = {.shape = shape};
    struct engine_config c = {.model_path = support_demo(),
                              .context = 512,
                              .n_threads = 2,
                              .ubatch = 64,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .convert = -1,
                              .backends = backends,
                              .device_selector = getenv("CHECK_OPENCL"),
                              .cache_dir = support_tmpdir()};
    struct engine *g = NULL;
    struct error e = {0};
    int ids[80];

    for (int i = 0; i < 80; i++)
        ids[i] = 100 + i;
    opencl_tune(&t);
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    ck_assert_msg(engine_place(g, "gpu", &e) >= 0 && engine_settle(g, &e) == 0, "%s", e.text);
    ck_assert_msg(engine_eval_chunked(g, ids, 79, 64, NULL, false, &e) == 0, "%s", e.text);
    ck_assert_msg(engine_eval_chunked(g, ids + 79, 1, 1, NULL, false, &e) == 0, "%s", e.text);
    engine_close(g);
    opencl_tune(&none);
}

START_TEST(local_arrays_belong_to_their_group)
{
    const char *cache = getenv("POCL_CACHE_DIR");
    struct device_info info[DEVICE_MAX];
    char why[256];
    int n = opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why);

    if (n == 0 || info[0].why_not[0] || !cache) {
        printf("SKIPPED: %s\n", !cache ? "POCL_CACHE_DIR is not set" : n ? info[0].why_not : why);
        return;
    }
    since = time(NULL);
    run(_i);
    ck_assert_int_eq(nftw(cache, visit, 16, FTW_PHYS), 0);
    if (!libraries) {
        printf("SKIPPED: no kernel was compiled into %s: the device is not PoCL's\n", cache);
        return;
    }
    ck_assert_msg(!found[0], "local arrays that all groups share:%s (inline what takes them)",
                  found);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernel_locals");
    TCase *t = tcase_create("locals");

    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, local_arrays_belong_to_their_group, 1, 3);
    suite_add_tcase(s, t);
    return support_run(s);
}
