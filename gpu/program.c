/* OpenCL programs: the sources embedded in the executable, compiled once per driver, device and
 * source and kept on disk. Engine thread. A cache file that is short, damaged or refused by the
 * driver is simply compiled again. */
#include "gpu/internal.h"
#include "engine/base/cache.h"
#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *text;
} sources[] = {
#include "kernels.inc"
};

#define TEXTS 10 /* of a program at most */
#define PROGRAM_MOST ((size_t)256 << 20)

/* Header of a binary. The checksum detects damage; it is safe to load because the file belongs to
 * this user (engine/base/cache.h). */
struct cache_header {
    char magic[8];
    uint64_t key, bytes, sum;
};

static const char *source(const char *name)
{
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        if (strcmp(sources[i].name, name) == 0)
            return sources[i].text;
    return "";
}

static uint64_t hash_text(uint64_t h, const char *s)
{
    return hash_bytes(h, s, strlen(s) + 1);
}

uint64_t program_fingerprint(const struct cl_target *t)
{
    uint64_t h = HASH_START;

    h = hash_text(h, MOETOP_VERSION);
    h = hash_text(h, t->platform_name);
    h = hash_text(h, t->platform_version);
    h = hash_text(h, t->info.name);
    h = hash_text(h, t->info.driver);
    if (opencl_tuning()->driver)
        h = hash_text(h, opencl_tuning()->driver);
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        h = hash_text(h, sources[i].text);
    return h;
}

/* PoCL has its own cache, and when asked for a program's binary it compiles every kernel once more,
 * for work-groups of any size. Its programs are built from source each time; a file without a
 * binary records that it has done so before. */
bool program_is_pocl(const struct device *d)
{
    return strcmp(d->target.platform_name, "Portable Computing Language") == 0;
}

/* Reads a cached binary, checked against damage: false if there is none, or with another key. data:
 * mem_free, after the header. */
static bool read_kept(const char *path, uint64_t key, char **data, struct cache_header *head)
{
    size_t n;

    if (cache_read(path, PROGRAM_MOST, data, &n, NULL) == 0 && *data && n >= sizeof *head) {
        memcpy(head, *data, sizeof *head);
        if (memcmp(head->magic, "MOETOPCL", 8) == 0 && head->key == key &&
            n - sizeof *head == head->bytes &&
            hash_bytes(key, *data + sizeof *head, head->bytes) == head->sum)
            return true;
    }
    mem_free(*data);
    *data = NULL;
    return false;
}

static bool was_compiled(const char *path, uint64_t key)
{
    struct cache_header head;
    char *data;
    bool yes = read_kept(path, key, &data, &head) && head.bytes == 0;

    mem_free(data);
    return yes;
}

static cl_program from_cache(struct device *d, const char *path, uint64_t key)
{
    struct cache_header head;
    char *data;
    cl_program p;
    cl_int rc, status;

    if (!read_kept(path, key, &data, &head))
        return NULL;
    size_t bytes = head.bytes;
    const unsigned char *binary = (const unsigned char *)data + sizeof head;
    p = cl.CreateProgramWithBinary(d->context, 1, &d->target.id, &bytes, &binary, &status, &rc);
    if (!p || rc != CL_SUCCESS || status != CL_SUCCESS ||
        cl.BuildProgram(p, 1, &d->target.id, "", NULL, NULL) != CL_SUCCESS) {
        if (p)
            cl.ReleaseProgram(p);
        p = NULL;
    }
    mem_free(data);
    return p;
}

/* Failure only costs time. */
static void to_cache(struct device *d, cl_program p, const char *path, uint64_t key)
{
    struct cache_header head = {"MOETOPCL", key, 0, 0};
    size_t bytes = 0;
    unsigned char *data, *binary;
    bool note = program_is_pocl(d);

    if (!note &&
        (cl.GetProgramInfo(p, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) != CL_SUCCESS ||
         bytes == 0))
        return;
    if (!(data = mem_alloc(sizeof head + bytes, 1)))
        return;
    binary = data + sizeof head;
    if (note ||
        cl.GetProgramInfo(p, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS) {
        head.bytes = bytes;
        head.sum = hash_bytes(key, binary, bytes);
        memcpy(data, &head, sizeof head);
        cache_write(path, data, sizeof head + bytes, NULL);
    }
    mem_free(data);
}

/* Whether the functions of cl_khr_integer_dot_product compile: Intel's runtime for CPUs (2026.2)
 * names the extension and has not declared them with these options. */
bool program_has_dot8(const struct device *d)
{
    const char *text = "#pragma OPENCL EXTENSION cl_khr_integer_dot_product : enable\n"
                       "__kernel void dot8(__global int *x) { *x = dot_4x8packed_ss_int(1u, 1u); }";
    cl_program p;
    cl_int rc;

    if (cl_injected(&rc))
        return false;
    p = cl.CreateProgramWithSource(d->context, 1, &text, NULL, &rc);
    if (!p || rc != CL_SUCCESS)
        return false;
    rc = cl.BuildProgram(p, 1, &d->target.id, "-cl-std=CL1.2 -w", NULL, NULL);
    cl.ReleaseProgram(p);
    return rc == CL_SUCCESS;
}

/* The first non-empty line of the compiler's log, for the error message. */
static void build_log(struct device *d, cl_program p, char *out, size_t size)
{
    size_t n = 0;
    char *log, *line;

    snprintf(out, size, "no log");
    if (cl.GetProgramBuildInfo(p, d->target.id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) != CL_SUCCESS ||
        n < 2 || !(log = mem_alloc(n + 1, 1)))
        return;
    if (cl.GetProgramBuildInfo(p, d->target.id, CL_PROGRAM_BUILD_LOG, n, log, NULL) == CL_SUCCESS) {
        line = strstr(log, "error");
        line = line ? line : log;
        snprintf(out, size, "%.*s", (int)strcspn(line, "\n"), line);
    }
    mem_free(log);
}

int program_build(struct device *d, const char *file, const char *what, const char *given,
                  const char *table, cl_program *out, struct error *e)
{
    char options[1200], broken[72];
    const struct device_config *c = &d->base.config;
    const char *text[TEXTS] = {source("common"), source("rows"), source(file)};
    uint64_t key, start = clock_now();
    char path[1024], log[240];
    bool known = false, has_broken = false;
    cl_int rc = CL_SUCCESS;

    for (int i = 3; i < TEXTS; i++)
        text[i] = "";
    if (strcmp(file, "quant") == 0 || strcmp(file, "token") == 0) {
        text[2] = table;
        text[3] = source("formats");
        text[4] = source("words");
        text[5] = source("blocks");
        text[6] = source("gemm");
        text[7] = source("quant");
    }
    if (strcmp(file, "token") == 0) {
        text[8] = source("choice");
        text[9] = source("output");
    } else if (strcmp(file, "core") == 0) {
        text[3] = source("attention");
        text[4] = source("choice");
        text[5] = source("routing");
    }
    snprintf(broken, sizeof broken, " -DBROKEN_%.40s",
             opencl_tuning()->broken ? opencl_tuning()->broken : "");
    for (int i = 0; i < TEXTS; i++)
        has_broken |= opencl_tuning()->broken && strstr(text[i], broken + 3);
    *out = NULL;
    if (snprintf(options, sizeof options, "%s%s", given, has_broken ? broken : "") >=
        (int)sizeof options)
        return error_set(e, ERR_DEVICE, "OpenCL %s: the options of %s are too long",
                         d->target.info.name, what);
    key = hash_text(hash_text(hash_text(program_fingerprint(&d->target), file), options), table);
    path[0] = '\0';
    if (c->cache_dir && snprintf(path, sizeof path, "%s/opencl-%s-%016llx.bin", c->cache_dir, file,
                                 (unsigned long long)key) >= (int)sizeof path)
        path[0] = '\0';
    if (program_is_pocl(d))
        known = path[0] && was_compiled(path, key);
    else if (path[0] && !cl_injected(&rc) && (*out = from_cache(d, path, key)))
        return 0;
    if (c->log && !known) {
        snprintf(log, sizeof log, "OpenCL: compiling %s for %.100s (once per driver)", what,
                 d->target.info.name);
        c->log(c->log_ctx, log);
    }
    if (!cl_injected(&rc))
        *out = cl.CreateProgramWithSource(d->context, TEXTS, text, NULL, &rc);
    if (cl_check(d, rc, "clCreateProgramWithSource", e) < 0)
        return ERR_DEVICE;
    if (!cl_injected(&rc))
        rc = cl.BuildProgram(*out, 1, &d->target.id, options, NULL, NULL);
    if (rc != CL_SUCCESS) {
        build_log(d, *out, log, sizeof log);
        cl.ReleaseProgram(*out);
        *out = NULL;
        return error_set(e, ERR_DEVICE, "OpenCL %s: the driver cannot compile %s (%s): %s",
                         d->target.info.name, what, opencl_word(rc), log);
    }
    if (path[0] && !known)
        to_cache(d, *out, path, key);
    if (c->log && clock_now() - start > 10 * CLOCK_SECOND) {
        snprintf(log, sizeof log, "OpenCL: compiling %s took %.1f s", what,
                 clock_seconds(clock_now() - start));
        c->log(c->log_ctx, log);
    }
    return 0;
}

int program_kernel(struct device *d, cl_program p, const char *name, struct kernel **out,
                   struct error *e)
{
    struct kernel *k = mem_alloc(1, sizeof *k);
    cl_int rc = CL_SUCCESS;
    cl_uint n = 0;

    *out = NULL;
    if (!k)
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory for a kernel");
    if (!cl_injected(&rc))
        k->k = cl.CreateKernel(p, name, &rc);
    if (rc == CL_SUCCESS)
        rc = cl.GetKernelInfo(k->k, CL_KERNEL_NUM_ARGS, sizeof n, &n, NULL);
    k->program = p;
    k->name = name;
    k->n_args = (int)n;
    if (cl_check(d, rc, name, e) < 0) {
        if (k->k)
            cl.ReleaseKernel(k->k);
        mem_free(k);
        return ERR_DEVICE;
    }
    *out = k;
    return 0;
}

void program_kernel_free(struct kernel *k)
{
    if (k)
        cl.ReleaseKernel(k->k);
    mem_free(k);
}
