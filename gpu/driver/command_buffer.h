/* cl_khr_command_buffer: launches that are recorded once and enqueued by one call. The entry points
 * of a platform's driver, and recordings. Engine thread. The types are our own: the extension's
 * header is another one with every version, what the calls take is not.
 *
 * Every recorded launch has a kernel object of its own, whose arguments nobody sets again: PoCL
 * 3.1 records a launch's arguments and then replays with those that its kernel has at that time.
 * Nothing is allocated here but by the driver. */
#ifndef GPU_COMMAND_BUFFER_H
#define GPU_COMMAND_BUFFER_H

#include "gpu/driver/functions.h"

#include <stdbool.h>

struct command_buffers { /* create NULL: there is none that can be used */
    void *(CL_API_CALL *create)(cl_uint n, const cl_command_queue *queues, const cl_ulong *flags,
                                cl_int *rc);
    cl_int(CL_API_CALL *finalize)(void *buffer);
    cl_int(CL_API_CALL *release)(void *buffer);
    cl_int(CL_API_CALL *enqueue)(cl_uint n, cl_command_queue *queues, void *buffer, cl_uint n_wait,
                                 const cl_event *wait, cl_event *event);
    cl_int(CL_API_CALL *launch)(void *buffer, cl_command_queue none, const void *properties,
                                cl_kernel k, cl_uint dims, const size_t *offset,
                                const size_t *global, const size_t *local, cl_uint n_wait,
                                const cl_uint *wait, cl_uint *sync, void **handle);
};

/* of: the properties of the queue that they are enqueued to. */
void command_buffers_find(struct command_buffers *out, cl_platform_id platform, cl_device_id device,
                          cl_command_queue_properties of);

/* One recording. kernel: room of them, of whoever has the recording; n launches. */
struct recording {
    void *buffer; /* NULL: nothing is recorded */
    cl_kernel *kernel;
    int n, room;
};

/* Each returns OpenCL's code; behind a failure recording_release is called. */
cl_int recording_begin(struct recording *r, const struct command_buffers *f,
                       cl_command_queue queue);
/* The recording owns k, at failure, too. */
cl_int recording_add(struct recording *r, const struct command_buffers *f, cl_kernel k,
                     cl_uint dims, const size_t *global, const size_t *local);
cl_int recording_end(struct recording *r, const struct command_buffers *f);
/* CL_INVALID_OPERATION: it still runs, as far as the driver knows. */
cl_int recording_enqueue(const struct recording *r, const struct command_buffers *f,
                         cl_event *event);
void recording_release(struct recording *r, const struct command_buffers *f);

#endif
