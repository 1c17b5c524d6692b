/* Several sessions on one engine: what one says is what it would say alone, whoever shares its
 * passes, whatever comes and goes beside it and wherever blocks move meanwhile. */
#include "engine/base/mem.h"
#include "engine/device/device.h"
#include "engine/model/hparams.h"
#include "engine/model/model.h"
#include "engine/run/engine.h"
#include "gpu/opencl.h"
#include "tests/fake_device.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct device_ops *const with_fake[] = {&fake_device_ops, &cpu_device_ops, NULL};
static const struct device_ops *const with_opencl[] = {&opencl_device_ops, &cpu_device_ops, NULL};

static struct engine *open_demo(const struct device_ops *const *backends, const char *place)
{
    struct engine_config c = {.model_path = support_demo(),
                              .context = 640,
                              .ubatch = 64,
                              .n_threads = 2,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .backends = backends,
                              .device_selector = backends == with_opencl ? "opencl" : NULL,
                              .placement = place,
                              .cache_dir = support_tmpdir(),
                              .convert = -1};
    struct engine *g = NULL;
    struct error e = {0};

    fake_device_control(NULL);
    if (engine_open(&g, &c, &e) < 0)
        ck_abort_msg("%s", e.text);
    return g;
}

static struct session *open_session(struct engine *g)
{
    struct session *s = NULL;
    struct error e = {0};

    if (engine_session_open(g, &s, &e) < 0)
        ck_abort_msg("%s", e.text);
    return s;
}

static void fill(int *ids, int n, int vocab, int seed)
{
    for (int i = 0; i < n; i++)
        ids[i] = (i * 37 + seed * 101 + 11) % vocab;
}

#define LINES 3
#define LENGTH 300

/* Sessions fed by turns, in pieces of other sizes each, over the border of a page; one of them ends
 * in between and its place is taken by another. */
static void interleave(const struct device_ops *const *backends, const char *place)
{
    static const int pieces[LINES][4] = {{100, 1, 170, 29}, {7, 250, 1, 42}, {64, 64, 64, 108}};
    struct engine *alone = open_demo(NULL, NULL), *g = open_demo(backends, place);
    struct session *s[LINES], *passing;
    int ids[LINES][LENGTH], vocab = engine_info(g)->model->hp.n_vocab, at[LINES] = {0};
    float *want[LINES][4], *got = mem_alloc((size_t)vocab, sizeof *got);
    struct error e = {0};

    for (int l = 0; l < LINES; l++) {
        fill(ids[l], LENGTH, vocab, l);
        engine_session_clear(alone);
        for (int p = 0, done = 0; p < 4; done += pieces[l][p++]) {
            want[l][p] = mem_alloc((size_t)vocab, sizeof *got);
            ck_assert_int_eq(engine_eval(alone, ids[l] + done, pieces[l][p], want[l][p], false, &e),
                             0);
        }
    }
    s[0] = open_session(g);
    passing = open_session(g);
    s[1] = open_session(g);
    ck_assert_int_eq(engine_session_eval(passing, ids[2], 290, 0, NULL, false, &e), 0);
    for (int p = 0; p < 4; p++) {
        if (p == 1) { /* its number and its pages are taken again */
            engine_session_close(passing);
            s[2] = open_session(g);
            ck_assert_int_eq(engine_session_eval(s[2], ids[2], pieces[2][0], 0, NULL, false, &e),
                             0);
            at[2] = pieces[2][0];
        }
        for (int l = 0; l < (p ? LINES : 2); l++) {
            ck_assert_msg(engine_session_eval(s[l], ids[l] + at[l], pieces[l][p], 0, got, false,
                                              &e) == 0,
                          "%s", e.text);
            at[l] += pieces[l][p];
            ck_assert_mem_eq(got, want[l][p], (size_t)vocab * sizeof *got);
        }
    }
    engine_session_close(s[1]);
    engine_close(g); /* with what is open */
    engine_close(alone);
    for (int l = 0; l < LINES; l++)
        for (int p = 0; p < 4; p++)
            mem_free(want[l][p]);
    mem_free(got);
}

START_TEST(interleaved_on_the_cpu)
{
    interleave(NULL, NULL);
}
END_TEST

START_TEST(interleaved_over_devices)
{
    static const char *const places[] = {"gpu", "layers:3", "attention-gpu"};

    interleave(with_fake, places[_i]);
}
END_TEST

START_TEST(interleaved_over_opencl)
{
    interleave(with_opencl, "attention-gpu");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sessions");
    TCase *t = tcase_create("sessions");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, interleaved_on_the_cpu);
    tcase_add_loop_test(t, interleaved_over_devices, 0, 3);
    tcase_add_test(t, interleaved_over_opencl);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
