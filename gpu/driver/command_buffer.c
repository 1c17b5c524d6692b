/* See command_buffer.h. */
#include "gpu/driver/command_buffer.h"
#include "engine/base/mem.h"

#include <string.h>

#define REQUIRED_QUEUE_PROPERTIES 0x12AA /* CL_DEVICE_COMMAND_BUFFER_REQUIRED_..._KHR */

/* Whether a word of the device's extensions is the extension: others begin with its name. */
static bool offered(cl_device_id device)
{
    static const char name[] = "cl_khr_command_buffer";
    size_t n = 0;
    char *all, *next = NULL;
    bool found = false;

    if (cl.GetDeviceInfo(device, CL_DEVICE_EXTENSIONS, 0, NULL, &n) != CL_SUCCESS || n > 1u << 20 ||
        !(all = mem_alloc(n + 1, 1)))
        return false;
    if (cl.GetDeviceInfo(device, CL_DEVICE_EXTENSIONS, n, all, NULL) == CL_SUCCESS)
        for (char *word = strtok_r(all, " ", &next); word && !found;
             word = strtok_r(NULL, " ", &next))
            found = strcmp(word, name) == 0;
    mem_free(all);
    return found;
}

void command_buffers_find(struct command_buffers *out, cl_platform_id platform, cl_device_id device,
                          cl_command_queue_properties of)
{
    static const char *const names[] = {"clCreateCommandBufferKHR", "clFinalizeCommandBufferKHR",
                                        "clReleaseCommandBufferKHR", "clEnqueueCommandBufferKHR",
                                        "clCommandNDRangeKernelKHR"};
    cl_command_queue_properties required = 0;
    void *at[sizeof names / sizeof names[0]];

    _Static_assert(sizeof at == sizeof *out, "an entry point is a pointer");
    memset(out, 0, sizeof *out);
    if (!offered(device) ||
        cl.GetDeviceInfo(device, REQUIRED_QUEUE_PROPERTIES, sizeof required, &required, NULL) !=
            CL_SUCCESS ||
        (required & ~of))
        return;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!(at[i] = cl.GetExtensionFunctionAddressForPlatform(platform, names[i])))
            return;
    memcpy(out, at, sizeof at);
}

cl_int recording_begin(struct recording *r, const struct command_buffers *f, cl_command_queue queue)
{
    cl_int rc = CL_SUCCESS;

    r->n = 0;
    r->buffer = f->create(1, &queue, NULL, &rc);
    return rc;
}

cl_int recording_add(struct recording *r, const struct command_buffers *f, cl_kernel k,
                     cl_uint dims, const size_t *global, const size_t *local)
{
    cl_uint sync = 0;

    if (r->n == r->room) {
        cl.ReleaseKernel(k);
        return CL_OUT_OF_HOST_MEMORY;
    }
    r->kernel[r->n++] = k;
    return f->launch(r->buffer, NULL, NULL, k, dims, NULL, global, local, 0, NULL, &sync, NULL);
}

cl_int recording_end(struct recording *r, const struct command_buffers *f)
{
    return f->finalize(r->buffer);
}

cl_int recording_enqueue(const struct recording *r, const struct command_buffers *f,
                         cl_event *event)
{
    return f->enqueue(0, NULL, r->buffer, 0, NULL, event);
}

void recording_release(struct recording *r, const struct command_buffers *f)
{
    if (r->buffer)
        f->release(r->buffer);
    r->buffer = NULL;
    while (r->n)
        cl.ReleaseKernel(r->kernel[--r->n]);
}
