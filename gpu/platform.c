/* Finds OpenCL devices: platforms, devices, and one line with the reason if there is none. Called
 * from the engine thread (probe, open) and by --list-devices. Every result of a driver is checked:
 * a platform may be broken, empty or inaccessible to this user without doing harm. */
#include "gpu/driver/driver_probe.h"
#include "gpu/internal.h"
#include "engine/base/mem.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of OpenCL 2.0's headers; older devices do not know the question. */
#define SVM_CAPABILITIES 0x1053
#define COMPUTE_CAPABILITY_MAJOR_NV 0x4000
#define SUB_GROUP_SIZES_INTEL 0x4108
#define SVM_FINE_GRAIN_BUFFER 2

#define MAX_PLATFORMS 16
#define MAX_DEVICES 32

const char *opencl_word(cl_int code)
{
    static const struct {
        cl_int code;
        const char *word;
    } words[] = {
        {-1, "CL_DEVICE_NOT_FOUND"},
        {-2, "CL_DEVICE_NOT_AVAILABLE"},
        {-3, "CL_COMPILER_NOT_AVAILABLE"},
        {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
        {-5, "CL_OUT_OF_RESOURCES"},
        {-6, "CL_OUT_OF_HOST_MEMORY"},
        {-7, "CL_PROFILING_INFO_NOT_AVAILABLE"},
        {-11, "CL_BUILD_PROGRAM_FAILURE"},
        {-12, "CL_MAP_FAILURE"},
        {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
        {-30, "CL_INVALID_VALUE"},
        {-33, "CL_INVALID_DEVICE"},
        {-34, "CL_INVALID_CONTEXT"},
        {-36, "CL_INVALID_COMMAND_QUEUE"},
        {-37, "CL_INVALID_HOST_PTR"},
        {-38, "CL_INVALID_MEM_OBJECT"},
        {-42, "CL_INVALID_BINARY"},
        {-43, "CL_INVALID_BUILD_OPTIONS"},
        {-44, "CL_INVALID_PROGRAM"},
        {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
        {-46, "CL_INVALID_KERNEL_NAME"},
        {-48, "CL_INVALID_KERNEL"},
        {-51, "CL_INVALID_ARG_SIZE"},
        {-52, "CL_INVALID_KERNEL_ARGS"},
        {-54, "CL_INVALID_WORK_GROUP_SIZE"},
        {-55, "CL_INVALID_WORK_ITEM_SIZE"},
        {-58, "CL_INVALID_EVENT"},
        {-59, "CL_INVALID_OPERATION"},
        {-61, "CL_INVALID_BUFFER_SIZE"},
        {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
        {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
    };
    static _Thread_local char other[32];

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i].code == code)
            return words[i].word;
    snprintf(other, sizeof other, "OpenCL error %d", (int)code);
    return other;
}

static void platform_text(cl_platform_id p, cl_platform_info what, char *out, size_t size)
{
    char text[1024] = "";
    size_t n = 0;

    if (cl.GetPlatformInfo(p, what, sizeof text - 1, text, &n) != CL_SUCCESS)
        text[0] = '\0';
    snprintf(out, size, "%s", text);
}

static void device_text(cl_device_id d, cl_device_info what, char *out, size_t size)
{
    size_t n = 0;
    char *text;

    out[0] = '\0';
    if (cl.GetDeviceInfo(d, what, 0, NULL, &n) != CL_SUCCESS || n == 0 || n > 1u << 20 ||
        !(text = mem_alloc(n + 1, 1)))
        return;
    if (cl.GetDeviceInfo(d, what, n, text, NULL) == CL_SUCCESS) {
        const char *start = text;

        text[n] = '\0';
        while (*start == ' ')
            start++;
        snprintf(out, size, "%s", start);
        for (size_t i = strlen(out); i && out[i - 1] == ' '; i--)
            out[i - 1] = '\0';
    }
    mem_free(text);
}

static uint64_t device_number(cl_device_id d, cl_device_info what, size_t size)
{
    uint64_t wide = 0;
    cl_uint narrow = 0;

    if (size == 4)
        return cl.GetDeviceInfo(d, what, 4, &narrow, NULL) == CL_SUCCESS ? narrow : 0;
    return cl.GetDeviceInfo(d, what, 8, &wide, NULL) == CL_SUCCESS ? wide : 0;
}

/* Sets the reason why an existing device cannot be used; empty if it can. */
static void judge(struct cl_target *t)
{
    char version[128], profile[64];
    int major = 0, minor = 0;

    device_text(t->id, CL_DEVICE_VERSION, version, sizeof version);
    device_text(t->id, CL_DEVICE_PROFILE, profile, sizeof profile);
    if (!device_number(t->id, CL_DEVICE_AVAILABLE, 4))
        snprintf(t->info.why_not, sizeof t->info.why_not,
                 "the driver says the device is not available");
    else if (!device_number(t->id, CL_DEVICE_COMPILER_AVAILABLE, 4))
        snprintf(t->info.why_not, sizeof t->info.why_not,
                 "the driver has no compiler for OpenCL C");
    else if (sscanf(version, "OpenCL %d.%d", &major, &minor) != 2 || major * 10 + minor < 12)
        snprintf(t->info.why_not, sizeof t->info.why_not, "%.40s: 1.2 or newer is needed",
                 version[0] ? version : "unknown version");
    else if (strcmp(profile, "FULL_PROFILE") != 0)
        snprintf(t->info.why_not, sizeof t->info.why_not,
                 "%.40s: the full profile is needed for exact arithmetic", profile);
    else if (!device_number(t->id, CL_DEVICE_ENDIAN_LITTLE, 4))
        snprintf(t->info.why_not, sizeof t->info.why_not, "big-endian devices are not supported");
    else if ((t->group_items = device_number(t->id, CL_DEVICE_MAX_WORK_GROUP_SIZE, 8)) < 128)
        snprintf(t->info.why_not, sizeof t->info.why_not, "work-groups of 128 are needed");
    else if ((t->local_bytes = device_number(t->id, CL_DEVICE_LOCAL_MEM_SIZE, 8)) < LOCAL_LEAST)
        snprintf(t->info.why_not, sizeof t->info.why_not, "32 KB of local memory are needed");
}

/* The int8 matrix engine of a device with these extensions: NVIDIA's of compute capability 8.0 and
 * more, Intel's by its least sub-group. 0: none that is known. */
static int engine_of(cl_device_id id, const char *extensions)
{
    size_t sizes[16] = {0}, n = 0;

    if (strstr(extensions, "cl_nv_device_attribute_query"))
        return device_number(id, COMPUTE_CAPABILITY_MAJOR_NV, 4) >= 8;
    if (!strstr(extensions, "cl_intel_subgroup_matrix_multiply_accumulate") ||
        !strstr(extensions, "cl_intel_required_subgroup_size") ||
        cl.GetDeviceInfo(id, SUB_GROUP_SIZES_INTEL, sizeof sizes, sizes, &n) != CL_SUCCESS)
        return 0;
    for (size_t i = 0; i < n / sizeof sizes[0]; i++)
        if (sizes[i] == 8)
            return 8;
    return 16;
}

static void describe(struct cl_target *t)
{
    char version[96];
    cl_device_type type = 0;
    size_t n = 0;
    char *extensions;

    device_text(t->id, CL_DEVICE_NAME, t->info.name, sizeof t->info.name);
    if (t->info.name[0] == '\0')
        snprintf(t->info.name, sizeof t->info.name, "unnamed device");
    device_text(t->id, CL_DRIVER_VERSION, version, sizeof version);
    snprintf(t->info.driver, sizeof t->info.driver, "%.60s %.60s", t->platform_name, version);
    if (cl.GetDeviceInfo(t->id, CL_DEVICE_TYPE, sizeof type, &type, NULL) == CL_SUCCESS)
        t->info.is_cpu_type = (type & CL_DEVICE_TYPE_CPU) != 0;
    t->info.unified = device_number(t->id, CL_DEVICE_HOST_UNIFIED_MEMORY, 4) != 0;
    t->coherent = t->info.is_cpu_type ||
                  (device_number(t->id, SVM_CAPABILITIES, 8) & SVM_FINE_GRAIN_BUFFER);
    t->info.memory = device_number(t->id, CL_DEVICE_GLOBAL_MEM_SIZE, 8);
    t->info.max_alloc = device_number(t->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 8);
    t->align = (cl_uint)device_number(t->id, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 4) / 8;
    if (cl.GetDeviceInfo(t->id, CL_DEVICE_EXTENSIONS, 0, NULL, &n) == CL_SUCCESS && n < 1u << 20 &&
        (extensions = mem_alloc(n + 1, 1))) {
        if (cl.GetDeviceInfo(t->id, CL_DEVICE_EXTENSIONS, n, extensions, NULL) == CL_SUCCESS) {
            t->has_dot8 = strstr(extensions, "cl_khr_integer_dot_product") != NULL;
            t->has_fp16 = strstr(extensions, "cl_khr_fp16") != NULL;
            t->engine = engine_of(t->id, extensions);
        }
        mem_free(extensions);
    }
    judge(t);
}

/* A line about GPUs of the kernel driver that this user may not open, the usual reason for an empty
 * list. */
static bool closed_render_node(char *why, size_t size)
{
    glob_t g;
    bool closed = false;

    if (glob("/dev/dri/renderD*", 0, NULL, &g) != 0)
        return false;
    for (size_t i = 0; i < g.gl_pathc && !closed; i++)
        if (access(g.gl_pathv[i], R_OK | W_OK) != 0) {
            snprintf(why, size,
                     "no permission for %s: add yourself to its group (sudo usermod -aG render "
                     "$USER) and log in again",
                     g.gl_pathv[i]);
            closed = true;
        }
    globfree(&g);
    return closed;
}

static int by_rank(const void *a, const void *b)
{
    const struct cl_target *x = a, *y = b;
    int rx = (x->info.why_not[0] ? 2 : 0) + x->info.is_cpu_type,
        ry = (y->info.why_not[0] ? 2 : 0) + y->info.is_cpu_type;

    return rx - ry;
}

int platform_list(struct cl_target *out, int max, char *why, size_t why_size)
{
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint n_platforms = 0;
    int n = 0, empty = 0;
    char empty_name[96] = "";
    cl_int rc;
    struct error e;

    if (opencl_load(&e) < 0) {
        snprintf(why, why_size, "%s", e.text);
        return 0;
    }
    driver_probe_run(why, why_size);
    rc = cl.GetPlatformIDs(MAX_PLATFORMS, platforms, &n_platforms);
    if (rc != CL_SUCCESS || n_platforms == 0) {
        if (!why[0] && !closed_render_node(why, why_size))
            snprintf(why, why_size,
                     "no OpenCL platform: install a driver for your GPU (intel-opencl-icd, "
                     "mesa-opencl-icd, "
                     "pocl-opencl-icd) or check /etc/OpenCL/vendors");
        return 0;
    }
    if (n_platforms > MAX_PLATFORMS)
        n_platforms = MAX_PLATFORMS;
    for (cl_uint p = 0; p < n_platforms; p++) {
        cl_device_id devices[MAX_DEVICES];
        cl_uint n_devices = 0;

        rc = cl.GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MAX_DEVICES, devices, &n_devices);
        if (rc != CL_SUCCESS || n_devices == 0) {
            if (empty++ == 0)
                platform_text(platforms[p], CL_PLATFORM_NAME, empty_name, sizeof empty_name);
            continue;
        }
        for (cl_uint i = 0; i < n_devices && i < MAX_DEVICES && n < max; i++) {
            struct cl_target *t = &out[n++];

            memset(t, 0, sizeof *t);
            t->platform = platforms[p];
            t->id = devices[i];
            platform_text(platforms[p], CL_PLATFORM_NAME, t->platform_name,
                          sizeof t->platform_name);
            platform_text(platforms[p], CL_PLATFORM_VERSION, t->platform_version,
                          sizeof t->platform_version);
            describe(t);
        }
    }
    /* A stable sort: equal ranks keep the loader's order. */
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && by_rank(&out[k - 1], &out[k]) > 0; k--) {
            struct cl_target t = out[k];

            out[k] = out[k - 1];
            out[k - 1] = t;
        }
    for (int i = 0; i < n; i++)
        snprintf(out[i].info.selector, sizeof out[i].info.selector, "opencl:%d", i);
    if (n == 0 && !why[0] && !closed_render_node(why, why_size))
        snprintf(why, why_size,
                 "OpenCL platform \"%s\"%s has no device: is the GPU's driver loaded?", empty_name,
                 empty > 1 ? " (and others)" : "");
    return n;
}

int platform_choose(struct cl_target *out, const char *selector, char *why, size_t why_size,
                    struct error *e)
{
    struct cl_target list[DEVICE_MAX * 2];
    const char *number = selector;
    char *end = NULL;
    int n = platform_list(list, DEVICE_MAX * 2, why, why_size);
    long index = 0;

    if (n == 0)
        return error_set(e, ERR_DEVICE, "OpenCL: %s", why);
    if (number && strncmp(number, "opencl", 6) == 0)
        number += number[6] == ':' ? 7 : 6;
    if (number && *number) {
        index = strtol(number, &end, 10);
        if (*end || index < 0 || index >= n)
            return error_set(e, ERR_USAGE,
                             "%s: no such OpenCL device (there %s %d, see --list-devices)",
                             selector, n == 1 ? "is" : "are", n);
    }
    *out = list[index];
    if (out->info.why_not[0])
        return error_set(e, ERR_DEVICE, "OpenCL device %s (%s): %s", out->info.selector,
                         out->info.name, out->info.why_not);
    return 0;
}
