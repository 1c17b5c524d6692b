/* Commands of a job: arguments, launches, copies, and the events for measuring the device's time.
 * Engine thread. A job keeps the event of its first kernel, that of a marker behind its last
 * command, and those of its copies; they are read when the host waits anyway. Other kernels have
 * none: with an event a launch costs NVIDIA's driver 12 us instead of 6. */
#include "gpu/internal.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <assert.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define POLL_NS (2 * CLOCK_MILLI)
#define POLL_CPU_NS (CLOCK_MILLI / 5)

int cl_check(struct device *d, cl_int code, const char *what, struct error *e)
{
    if (code == CL_SUCCESS)
        return 0;
    if (code == CL_DEVICE_NOT_AVAILABLE || code == CL_INVALID_CONTEXT ||
        code == CL_INVALID_COMMAND_QUEUE)
        d->lost = true;
    d->stats.failures++;
    return error_set(e,
                     code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY
                         ? ERR_MEMORY
                         : ERR_DEVICE,
                     "OpenCL %s: %s failed: %s", d->target.info.name, what, opencl_word(code));
}

void log_line(struct device *d, const char *line)
{
    if (d->base.config.log)
        d->base.config.log(d->base.config.log_ctx, line);
}

int job_begin(struct device *d, struct error *e)
{
    if (d->lost)
        return error_set(e, ERR_DEVICE, "OpenCL %s: the device was lost", d->target.info.name);
    if (d->n_jobs == JOBS && job_harvest(d, e) < 0)
        return ERR_DEVICE;
    d->current = &d->job[d->n_jobs++];
    memset(d->current, 0, sizeof *d->current);
    d->stats.jobs++;
    return 0;
}

int job_flush(struct device *d, struct error *e)
{
    cl_int rc = CL_SUCCESS;

    if (!cl_injected(&rc))
        rc = cl.Flush(d->queue);
    return cl_check(d, rc, "clFlush", e);
}

int job_end(struct device *d, struct error *e)
{
    cl_int rc = CL_SUCCESS;

    rc = rows_end(d);
    if (rc == CL_SUCCESS && d->current->first && !cl_injected(&rc))
        rc = cl.EnqueueMarkerWithWaitList(d->queue, 0, NULL, &d->current->last);
    d->current = NULL;
    if (cl_check(d, rc, "clEnqueueMarker", e) < 0)
        return ERR_DEVICE;
    return job_flush(d, e);
}

static uint64_t event_time(cl_event ev, cl_profiling_info what)
{
    cl_ulong t = 0;

    return ev && cl.GetEventProfilingInfo(ev, what, sizeof t, &t, NULL) == CL_SUCCESS ? t : 0;
}

double launch_seconds(cl_event ev)
{
    uint64_t start = event_time(ev, CL_PROFILING_COMMAND_START),
             end = event_time(ev, CL_PROFILING_COMMAND_END);

    return start && end > start ? (double)(end - start) * 1e-9 : 0;
}

static void event_release(cl_event *ev)
{
    if (*ev)
        cl.ReleaseEvent(*ev);
    *ev = NULL;
}

/* Negative if the command ended with an error (how some drivers report a device lost meanwhile). */
static cl_int event_status(cl_event ev)
{
    cl_int status = CL_COMPLETE;

    if (ev && cl.GetEventInfo(ev, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                              NULL) != CL_SUCCESS)
        status = CL_OUT_OF_RESOURCES;
    return status;
}

void job_forget(struct device *d)
{
    for (int i = 0; i < d->n_jobs; i++) {
        struct job_record *r = &d->job[i];

        event_release(&r->first);
        event_release(&r->last);
        event_release(&r->replayed);
        for (int k = 0; k < r->n_copies; k++)
            event_release(&r->copy[k]);
    }
    d->n_jobs = 0;
    for (int i = 0; i < REPLAYS; i++)
        d->replay.at[i].busy = false;
    d->current = NULL;
    d->table_busy = false;
    pinned_done(d, false);
    rows_unbind(d, 0);
}

static void scatter(struct device *d)
{
    size_t hidden = (size_t)d->base.config.model->hp.hidden;

    for (int i = 0; i < d->scatter_n; i++)
        memcpy(d->scatter_to + (size_t)d->scatter_at[i] * hidden, d->results + (size_t)i * hidden,
               hidden * sizeof(float));
    d->scatter_n = 0;
}

bool job_done(const struct device *d)
{
    const struct job_record *r = d->n_jobs ? &d->job[d->n_jobs - 1] : NULL;

    return !r || (r->last && event_status(r->last) <= CL_COMPLETE);
}

/* Looks whether the newest job has ended, for some time before the host sleeps until then: waking
 * it takes longer than most jobs of a token. A CPU's OpenCL may need the core for its own threads.
 */
static void poll(const struct device *d, uint64_t start)
{
    uint64_t most = d->target.info.is_cpu_type ? POLL_CPU_NS : POLL_NS;

    while (!job_done(d) && clock_now() - start < most)
        if (d->target.info.is_cpu_type)
            sched_yield();
}

int job_harvest(struct device *d, struct error *e)
{
    cl_int rc = CL_SUCCESS, failed = CL_SUCCESS;
    uint64_t start = clock_now();

    if (d->n_jobs == 0)
        return 0;
    poll(d, start);
    if (!cl_injected(&rc))
        rc = cl.Finish(d->queue);
    d->stats.waits++;
    d->stats.wait_ns += clock_now() - start;
    for (int i = 0; i < d->n_jobs && rc == CL_SUCCESS; i++) {
        struct job_record *r = &d->job[i];
        uint64_t a = event_time(r->first, CL_PROFILING_COMMAND_START),
                 b = event_time(r->last, CL_PROFILING_COMMAND_END);

        if (event_status(r->first) < 0 || event_status(r->last) < 0)
            failed = event_status(r->last) < 0 ? event_status(r->last) : event_status(r->first);
        if (event_status(r->replayed) < 0)
            failed = event_status(r->replayed);
        if (b > a)
            d->stats.busy_ns += b - a;
        for (int k = 0; k < r->n_copies; k++) {
            a = event_time(r->copy[k], CL_PROFILING_COMMAND_START);
            b = event_time(r->copy[k], CL_PROFILING_COMMAND_END);
            if (event_status(r->copy[k]) < 0)
                failed = event_status(r->copy[k]);
            if (b > a)
                d->stats.transfer_ns += b - a;
        }
    }
    pinned_done(d, rc == CL_SUCCESS && failed == CL_SUCCESS);
    job_forget(d);
    if (cl_check(d, rc, "clFinish", e) < 0 || cl_check(d, failed, "a kernel", e) < 0) {
        d->scatter_n = 0;
        return ERR_DEVICE;
    }
    scatter(d);
    return 0;
}

/* Nothing is known of its arguments where a buffer was released since: another one may have the
 * handle. */
static void forget_args(struct kernel *k)
{
    uint64_t now = opencl_releases();

    if (k->releases != now)
        memset(k->arg, 0, sizeof k->arg);
    k->releases = now;
}

/* Floats by their bits. */
static cl_int set_arg(struct kernel *k, cl_uint i, struct kernel_arg to, size_t size)
{
    struct kernel_arg *has = &k->arg[i];
    cl_int rc;

    assert(i < KERNEL_ARGS);
    if (has->kind == to.kind && memcmp(&has->value, &to.value, size) == 0)
        return CL_SUCCESS;
    rc = cl.SetKernelArg(k->k, i, size, &to.value);
    if (rc != CL_SUCCESS)
        to.kind = 0;
    *has = to;
    return rc;
}

int launch_args(struct device *d, struct kernel *k, int first, struct error *e, const char *format,
                ...)
{
    va_list ap;
    cl_int rc = CL_SUCCESS;

    va_start(ap, format);
    (void)cl_injected(&rc);
    forget_args(k);
    for (cl_uint i = (cl_uint)first; *format && rc == CL_SUCCESS; format++, i++) {
        struct kernel_arg to = {.kind = *format};

        if (*format == 'm') {
            to.value.m = va_arg(ap, cl_mem);
            to.value.m = to.value.m ? to.value.m : d->none;
            rc = set_arg(k, i, to, sizeof to.value.m);
        } else if (*format == 'i') {
            to.value.i = va_arg(ap, int);
            rc = set_arg(k, i, to, sizeof to.value.i);
        } else {
            to.value.f = (cl_float)va_arg(ap, double);
            rc = set_arg(k, i, to, sizeof to.value.f);
        }
    }
    va_end(ap);
    return cl_check(d, rc, "clSetKernelArg", e);
}

/* ---- tokens that are recorded ---- */

#define REPLAY_FAILURES 3  /* so many, and nothing is recorded any more */
#define REPLAY_LAUNCHES 24 /* of a layer at most */

int recordings_unfit(struct device *d, struct error *e)
{
    d->replay.unfit = true;
    return error_set(e, ERR_DEVICE, "OpenCL %s: what is no launch cannot be recorded",
                     d->target.info.name);
}

int recordings_open(struct device *d, struct error *e)
{
    struct replay *r = &d->replay;
    int room = d->base.config.model->hp.n_layers * REPLAY_LAUNCHES + REPLAY_LAUNCHES;

    r->why = "one by one: kernels for a CPU";
    if (d->wide)
        return 0;
    r->why = "one by one: switched off";
    if (opencl_tuning()->no_replay)
        return 0;
    r->why = "one by one: the driver has no cl_khr_command_buffer";
    command_buffers_find(&r->calls, d->target.platform, d->target.id, CL_QUEUE_PROFILING_ENABLE);
    if (!r->calls.create)
        return 0;
    if (!(r->kernels = mem_alloc((size_t)(REPLAYS * room), sizeof *r->kernels)))
        return error_set(e, ERR_MEMORY, "OpenCL: out of memory for recordings");
    for (int i = 0; i < REPLAYS; i++)
        r->at[i].launches = (struct recording){.kernel = r->kernels + i * room, .room = room};
    r->why = "of a token recorded, then replayed (cl_khr_command_buffer)";
    r->usable = true;
    return 0;
}

void recordings_forget(struct device *d)
{
    struct replay *r = &d->replay;

    for (int i = 0; i < REPLAYS && r->kernels; i++)
        recording_release(&r->at[i].launches, &r->calls);
    r->now = NULL;
    r->n_seen = 0; /* where something moves at every token nothing is worth a recording */
    memset(r->seen, 0, sizeof r->seen);
    r->releases = opencl_lasting_releases();
}

void recordings_close(struct device *d)
{
    recordings_forget(d);
    mem_free(d->replay.kernels);
    d->replay.kernels = NULL;
    d->replay.usable = false;
}

void recordings_stop(struct device *d, const char *why)
{
    recordings_forget(d);
    d->replay.usable = false;
    d->replay.why = why;
}

const char *recordings_word(const struct device *d)
{
    return d->replay.why;
}

/* Tokens are launched one by one; for good, if that goes on. */
static void recordings_failed(struct device *d, const struct error *why)
{
    char line[400];

    snprintf(line, sizeof line, "%.300s; the token's launches are made one by one", why->text);
    log_line(d, line);
    if (++d->replay.failures == REPLAY_FAILURES)
        recordings_stop(d, "one by one: recording failed");
}

struct token_recording *recordings_find(struct device *d, uint64_t key)
{
    struct replay *r = &d->replay;

    if (r->releases != opencl_lasting_releases())
        recordings_forget(d);
    for (int i = 0; i < REPLAYS; i++)
        if (r->at[i].launches.buffer && r->at[i].key == key)
            return &r->at[i];
    return NULL;
}

bool recordings_worth(struct device *d, uint64_t key)
{
    struct replay *r = &d->replay;

    for (int i = 0; i < REPLAYS; i++)
        if (r->seen[i] == key)
            return true;
    r->seen[r->n_seen++ % REPLAYS] = key;
    return false;
}

struct token_recording *recordings_begin(struct device *d, uint64_t key, struct error *e)
{
    struct replay *r = &d->replay;
    struct token_recording *to = NULL;
    cl_int rc = CL_SUCCESS;

    if (r->releases != opencl_lasting_releases())
        recordings_forget(d);
    for (int i = 0; i < REPLAYS; i++) {
        struct token_recording *at = &r->at[i];

        if (!at->busy &&
            (!to || !at->launches.buffer || (to->launches.buffer && at->used_at < to->used_at)))
            to = at;
    }
    if (!to)
        return NULL;
    recording_release(&to->launches, &r->calls);
    to->key = key;
    r->unfit = false;
    if (!cl_injected(&rc))
        rc = recording_begin(&to->launches, &r->calls, d->queue);
    if (cl_check(d, rc, "clCreateCommandBuffer", e) < 0) {
        recordings_failed(d, e);
        return NULL;
    }
    r->now = to;
    return to;
}

struct token_recording *recordings_end(struct device *d, int rc, struct error *e)
{
    struct replay *r = &d->replay;
    struct token_recording *to = r->now;
    cl_int code = CL_SUCCESS;

    r->now = NULL;
    if (rc == 0 && !cl_injected(&code))
        code = recording_end(&to->launches, &r->calls);
    if (rc == 0 && cl_check(d, code, "clFinalizeCommandBuffer", e) == 0 && !r->unfit &&
        r->releases == opencl_lasting_releases()) {
        d->stats.recorded++;
        return to;
    }
    recording_release(&to->launches, &r->calls);
    if (!r->unfit && (rc < 0 || code != CL_SUCCESS))
        recordings_failed(d, e);
    else if (r->unfit && ++r->unfits == REPLAY_FAILURES)
        recordings_stop(d, "one by one: its layers are more than launches");
    return NULL;
}

/* Behind a marker, from which the job's time counts: a replay's event need not say when its first
 * kernel began. */
int recordings_run(struct device *d, struct token_recording *r, int position, struct error *e)
{
    struct job_record *job = d->current;
    uint64_t rows = d->stats.row_bytes;
    cl_int rc = CL_SUCCESS;

    if (r->busy) /* its position is still needed */
        return 0;
    r->position = position;
    if (launch_write(d, d->replay.position, 0, &r->position, sizeof r->position, e) < 0)
        return ERR_DEVICE;
    d->stats.row_bytes = rows;
    if (!job->first && !cl_injected(&rc))
        rc = cl.EnqueueMarkerWithWaitList(d->queue, 0, NULL, &job->first);
    if (rc == CL_SUCCESS && !cl_injected(&rc))
        rc = recording_enqueue(&r->launches, &d->replay.calls, &job->replayed);
    if (rc == CL_INVALID_OPERATION)
        return 0;
    if (cl_check(d, rc, "clEnqueueCommandBuffer", e) < 0)
        return ERR_DEVICE;
    r->busy = true;
    r->used_at = ++d->replay.clock;
    d->launches += (uint64_t)r->launches.n;
    d->stats.replayed++;
    return 1;
}

/* A kernel like k with its arguments: launch_args knows them. */
static int record(struct device *d, const struct kernel *k, int dims, const size_t *global,
                  const size_t *local, struct error *e)
{
    cl_kernel own = NULL;
    cl_int rc = CL_SUCCESS;

    if (!cl_injected(&rc))
        own = cl.CreateKernel(k->program, k->name, &rc);
    for (int i = 0; i < k->n_args && rc == CL_SUCCESS; i++) {
        const struct kernel_arg *a = &k->arg[i];

        rc = a->kind ? cl.SetKernelArg(own, (cl_uint)i,
                                       a->kind == 'm' ? sizeof a->value.m : sizeof a->value.i,
                                       &a->value)
                     : CL_INVALID_KERNEL_ARGS;
    }
    if (rc == CL_SUCCESS && !cl_injected(&rc)) {
        rc = recording_add(&d->replay.now->launches, &d->replay.calls, own, (cl_uint)dims, global,
                           local);
        own = NULL;
    }
    if (own)
        cl.ReleaseKernel(own);
    return cl_check(d, rc, "recording a launch", e);
}

void launch_keep(struct device *d, cl_event ev)
{
    d->launches++;
    if (d->replay.now) /* a library's, which was enqueued */
        d->replay.unfit = true;
    if (ev && d->current && !d->current->first)
        d->current->first = ev;
    else
        event_release(&ev);
}

/* Not one of ours is allocated: what does not fit is left out, and missed at the end. */
static void trace_launch(struct launch_trace *t, const char *name, int dims, const size_t *global,
                         const size_t *local, cl_event ev)
{
    struct launch_record *r = &t->at[t->n];

    if (t->n == t->room || cl.RetainEvent(ev) != CL_SUCCESS)
        return;
    t->n++;
    *r = (struct launch_record){name, 1, 1, ev};
    for (int i = 0; i < dims; i++) {
        r->items *= global[i];
        r->group *= local[i];
    }
}

int launch(struct device *d, const struct kernel *k, const char *name, int dims,
           const size_t *global, const size_t *local, struct error *e)
{
    cl_event ev = NULL;
    cl_int rc = CL_SUCCESS;
    bool timed = d->trace || (d->current && !d->current->first);

    if (d->replay.now)
        return record(d, k, dims, global, local, e);
    if (!cl_injected(&rc))
        rc = cl.EnqueueNDRangeKernel(d->queue, k->k, (cl_uint)dims, NULL, global, local, 0, NULL,
                                     timed ? &ev : NULL);
    if (cl_check(d, rc, name, e) < 0)
        return ERR_DEVICE;
    if (d->trace)
        trace_launch(d->trace, name, dims, global, local, ev);
    launch_keep(d, ev);
    return 0;
}

int launch_core(struct device *d, enum core_kernel k, const char *name, size_t x, size_t y,
                size_t z, size_t local, struct error *e)
{
    const size_t global[3] = {(x + local - 1) / local * local, y, z}, items[3] = {local, 1, 1};

    return launch(d, d->core[k], name, 3, global, items, e);
}

static void keep_copy(struct device *d, cl_event ev)
{
    if (d->current &&
        d->current->n_copies < (int)(sizeof d->current->copy / sizeof d->current->copy[0]))
        d->current->copy[d->current->n_copies++] = ev;
    else
        event_release(&ev);
}

int launch_write(struct device *d, cl_mem mem, size_t offset, const void *data, size_t bytes,
                 struct error *e)
{
    cl_event ev = NULL;
    cl_int rc = CL_SUCCESS;

    if (d->replay.now)
        return recordings_unfit(d, e);
    data = pinned_write(d, data, bytes);
    if (!cl_injected(&rc))
        rc = cl.EnqueueWriteBuffer(d->queue, mem, CL_FALSE, offset, bytes, data, 0, NULL, &ev);
    if (cl_check(d, rc, "clEnqueueWriteBuffer", e) < 0)
        return ERR_DEVICE;
    d->stats.uploaded_bytes += bytes;
    d->stats.row_bytes += bytes;
    keep_copy(d, ev);
    return 0;
}

int launch_input(struct device *d, cl_mem *slot, const void *data, size_t bytes, struct error *e)
{
    return rows_bind(d, slot, data, bytes) ? 0 : launch_write(d, *slot, 0, data, bytes, e);
}

int launch_copy(struct device *d, cl_mem from, size_t at, cl_mem to, size_t bytes, struct error *e)
{
    cl_event ev = NULL;
    cl_int rc = CL_SUCCESS;

    if (d->replay.now)
        return recordings_unfit(d, e);
    if (!cl_injected(&rc))
        rc = cl.EnqueueCopyBuffer(d->queue, from, to, at, 0, bytes, 0, NULL, &ev);
    if (cl_check(d, rc, "clEnqueueCopyBuffer", e) < 0)
        return ERR_DEVICE;
    launch_keep(d, ev);
    return 0;
}

int launch_read(struct device *d, cl_mem mem, size_t offset, void *data, size_t bytes,
                struct error *e)
{
    cl_event ev = NULL;
    cl_int rc = CL_SUCCESS;

    if (d->replay.now)
        return recordings_unfit(d, e);
    data = pinned_read(d, data, bytes);
    if (!cl_injected(&rc))
        rc = cl.EnqueueReadBuffer(d->queue, mem, CL_FALSE, offset, bytes, data, 0, NULL, &ev);
    if (cl_check(d, rc, "clEnqueueReadBuffer", e) < 0)
        return ERR_DEVICE;
    d->stats.downloaded_bytes += bytes;
    d->stats.row_bytes += bytes;
    keep_copy(d, ev);
    return 0;
}
