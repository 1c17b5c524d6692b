/* See support.h. */
#include "tests/support.h"
#include "tests/widen.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/file/gguf_write.h"
#include "engine/file/weights.h"
#include "engine/layout/pack.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char tmp[64];

int support_run(Suite *s)
{
    SRunner *r = srunner_create(s);
    int failed;

    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BY_TURNS 1
#elif defined(__has_feature)
#define BY_TURNS (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define BY_TURNS 0
#endif

bool support_turn(int i, int of)
{
    return !BY_TURNS || i % of == 0;
}

const char *support_root(void)
{
    static char root[PATH_MAX];
    const char *given = getenv("CHECK_ROOT");

    if (given)
        return given;
    if (!root[0]) {
        char probe[PATH_MAX + 32];

        if (!getcwd(root, sizeof root))
            return ".";
        for (;;) {
            char *slash;

            snprintf(probe, sizeof probe, "%s/tests/support.h", root);
            if (access(probe, R_OK) == 0 || !(slash = strrchr(root, '/')) || slash == root)
                break;
            *slash = 0;
        }
    }
    return root;
}

const char *support_path(const char *below_tests)
{
    static char ring[8][PATH_MAX + 512];
    static int at;
    char *p = ring[at++ & 7];

    snprintf(p, sizeof ring[0], "%s/tests/%s", support_root(), below_tests);
    return p;
}

const char *support_shared(const char *below_data)
{
    static char ring[8][PATH_MAX + 512];
    static int at;
    char *p = ring[at++ & 7];

    snprintf(p, sizeof ring[0], "%s/../shared/data/%s", support_root(), below_data);
    if (access(p, R_OK) == 0)
        return p;
    support_skip("shared data/%s is not here", below_data);
    return NULL;
}

const char *support_demo(void)
{
    /* for good: a test may ask for many other paths meanwhile */
    static char path[PATH_MAX + 512];

    if (!path[0])
        snprintf(path, sizeof path, "%s",
                 support_path("../configs/models/tiny-storyteller-Q8_0.gguf"));
    return path;
}

static void say(const char *kind, const char *format, va_list ap)
{
    printf("%s: ", kind);
    vprintf(format, ap);
    printf("\n");
    fflush(stdout);
}

void support_skip(const char *why, ...)
{
    va_list ap;

    va_start(ap, why);
    say("SKIPPED", why, ap);
    va_end(ap);
}

void support_ran(const char *what, ...)
{
    va_list ap;

    va_start(ap, what);
    say("RAN", what, ap);
    va_end(ap);
}

static void remove_tmp(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf '%s'", tmp);
    if (system(command)) {
        /* nothing left to do at exit */
    }
}

const char *support_tmpdir(void)
{
    static pid_t owner;

    if (!tmp[0] || owner != getpid()) {
        strcpy(tmp, "/tmp/moetop-test-XXXXXX");
        if (!mkdtemp(tmp))
            abort();
        owner = getpid();
        atexit(remove_tmp);
    }
    return tmp;
}

const char *support_put(const char *dir, const char *name, const char *text)
{
    static char ring[8][PATH_MAX];
    static int at;
    char *path = ring[at++ & 7];
    size_t n = strlen(text);
    FILE *f;

    snprintf(path, sizeof ring[0], "%s/%s", dir, name);
    ck_assert_msg((f = fopen(path, "wb")) != NULL, "%s", path);
    ck_assert_uint_eq(fwrite(text, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
    return path;
}

void support_kernel_sets(void)
{
    char list[160] = "";

    for (int i = 0; kernels_at(i); i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), " %s", kernels_at(i)->name);
    support_ran("kernel sets%s", list);
}

void support_poison(const char *model, const char *tensor, uint16_t half, const char *copy)
{
    static const struct file_kind kind = {"model", (size_t)1 << 30, ERR_MODEL};
    uint32_t single = half == 0x7e00 ? 0x7fc00000 : (uint32_t)(half & 0x8000) << 16 | 0x7f800000;
    const struct tensor_view *t, *head;
    struct weight_file *f;
    struct error e;
    char *bytes, *at;
    size_t n;

    ck_assert_int_eq(file_read(model, &kind, &bytes, &n, &e), 0);
    ck_assert_int_eq(weight_file_open(&f, model, false, &e), 0);
    t = weight_file_find(f, tensor);
    head = weight_file_find(f, "output.weight");
    ck_assert_msg(t && head && (t->type == DTYPE_Q8_0 || t->type == DTYPE_F32), "%s", tensor);
    ck_assert((at = memmem(bytes, n, head->data, head->bytes)) != NULL);
    /* Biases may lie there twice, the head does not. */
    at += (const char *)t->data - (const char *)head->data;
    for (size_t i = 0; i < t->bytes; i += (size_t)dtype_info(t->type)->bytes)
        if (t->type == DTYPE_F32)
            memcpy(at + i, &single, 4);
        else
            memcpy(at + i, &half, 2);
    weight_file_close(f);
    ck_assert_int_eq(file_replace(copy, bytes, n, &e), 0);
    mem_free(bytes);
}

void support_widen(const char *model, const char *copy)
{
    struct error e = {0};

    ck_assert_msg(widen_gguf(model, copy, &e) == 0, "%s", e.text);
}

const char *support_program(void)
{
    static char path[4096];
    const char *build = getenv("CHECK_BUILD");

    snprintf(path, sizeof path, "%s%s%s/moetop", build && build[0] == '/' ? "" : support_root(),
             build && build[0] == '/' ? "" : "/", build ? build : "build/release");
    return path;
}

int support_sh(const char *folder, const char *format, ...)
{
    char command[8192];
    va_list args;
    int n, status;

    n = snprintf(command, sizeof command, "cd '%s' || exit 99; T='%s'; D='%s'; M=\"$T -m $D\"; ",
                 folder, support_program(), support_demo());
    va_start(args, format);
    n += vsnprintf(command + n, sizeof command - (size_t)n, format, args);
    va_end(args);
    ck_assert_int_lt(n, (int)sizeof command);
    status = system(command);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

const char *support_numpy(void)
{
    const char *known[] = {getenv("PYTHON"), "python3"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] && support_sh("/tmp", "%s -c 'import numpy' 2>/dev/null", known[i]) == 0)
            return known[i];
    return NULL;
}
