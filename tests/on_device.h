/* A small random model computed by one back end, for the suites that compare OpenCL's bits with the
 * CPU's. The device is the first that there is; CHECK_OPENCL names another ("opencl:1"). Whatever
 * fails fails the running test. One thread. */
#ifndef TESTS_ON_DEVICE_H
#define TESTS_ON_DEVICE_H

#include "engine/device/device.h"
#include "tests/tiny_model.h"

struct on_device {
    struct tiny_shape shape;
    enum kv_type kv;
    int chunk, jobs; /* jobs: single jobs instead of layers */
};

/* Two layers of six experts in Q8_0: what a test changes is all it has to say. */
extern const struct tiny_shape on_device_shape;
/* Where programs are kept, shared by all tests of a run: each is compiled once. The suite sets it.
 */
extern char on_device_cache[256];

/* A device's log lines: to stderr where CHECK_LOG is set. ctx is not used. */
void on_device_log(void *ctx, const char *line);
/* The value of CHECK_OPENCL; NULL: none. */
const char *on_device_selector(void);
/* The device can be used in this shape of kernels (of opencl_tuning), which the next one opened
 * has; says why where not. Mesa's drivers need minutes to compile wide vectors. */
bool on_device_there(int shape);
struct device_config on_device_config(const struct tiny_model *t, const struct on_device *s);
/* Every block of the model onto the device. */
void on_device_put_all(const struct device_ops *ops, struct device *d, const struct hparams *hp);
/* Logits of every token, (n, vocab), by one back end; the caller frees them. split: where single
 * jobs run, every split-th expert is the CPU's at the same time (0: none; negative: the first
 * -split of a layer). */
float *on_device_forward(const struct device_ops *ops, const struct on_device *s, int n, int split);
/* The largest difference; a NaN counts as one. */
double on_device_difference(const float *a, const float *b, size_t n);

#endif
