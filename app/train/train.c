/* See train.h. The output folder has the adapter, and until the run is complete a checkpoint. */
#include "app/train/train.h"

#include "app/common/memory_left.h"
#include "app/common/paths.h"
#include "app/common/signals.h"
#include "app/setup/screen/screen_loop.h"
#include "app/train/log.h"
#include "app/train/screen.h"
#include "app/train/settings.h"
#include "engine/base/clock.h"
#include "engine/base/size.h"
#include "engine/base/topology.h"
#include "engine/train/checkpoint.h"
#include "engine/train/peak.h"
#include "engine/train/save.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECKPOINT "training.checkpoint"
#define LOOK_MS 200
#define PEAK_SECONDS 2.0
#define PROGRAM ((uint64_t)32 << 20) /* bytes: code, libraries, oneDNN's generated kernels */

struct run {
    const struct options *o;
    struct trainer *t;
    struct train_log log;
    struct train_screen *screen; /* NULL: a line per step */
    struct train_view *view;     /* its contents */
    atomic_bool leave, over;     /* the user wants to quit; the last step is done */
    int rc;                      /* result of the steps, once they are done */
    struct error *why;
    char checkpoint[PATH_MAX];
    uint64_t begun;
    int64_t tokens;             /* since the run was started */
    int first;                  /* steps done before that */
    double seconds, operations; /* of its steps: time, products of frozen weights */
    int threads;
    double loss;  /* of the last step */
    double valid; /* the newest; NAN: none */
    bool behind;  /* a checkpoint could not be written, which was reported */
};

bool train_wanted(const struct options *o)
{
    return o->finetune != NULL;
}

static bool ended(void *ctx)
{
    const struct run *r = ctx;

    return signals_last() != 0 || atomic_load(&r->leave);
}

/* ---- display ---- */

static void say(void *ctx, const char *line)
{
    struct run *r = ctx;

    if (r->screen)
        train_view_say(r->view, line);
    else
        fprintf(stderr, "moetop: %s\n", line);
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static void show_model(const struct run *r)
{
    const struct train_memory m = trainer_memory(r->t);
    const struct modules *x = trainer_modules(r->t);
    const struct train_config *c = trainer_config(r->t);
    char a[24], b[24], d[24];

    fprintf(stderr,
            "moetop: %d line%s, %d step%s of %d x %d; %d matrices have an adapter, %zu values are "
            "trained; memory: base %s, adapter %s, batch %s\n",
            trainer_data(r->t)->n, plural(trainer_data(r->t)->n), c->steps, plural(c->steps),
            c->batch, c->accumulation, x->n, modules_trained(x), size_format(m.base, a, sizeof a),
            size_format(m.adapter, b, sizeof b), size_format(m.batch, d, sizeof d));
}

/* --fit: the memory it needs, and the free memory. */
static int show_fit(const struct run *r, struct error *e)
{
    const struct train_memory m = trainer_memory(r->t);
    const struct {
        const char *what;
        uint64_t bytes;
    } rows[] = {{"base", m.base},
                {"adapter, gradients, moments", m.adapter},
                {"a batch", m.batch},
                {"program", PROGRAM}};
    uint64_t sum = 0, left = memory_left("");
    char text[24];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("%-28s %10s\n", rows[i].what, size_format(rows[i].bytes, text, sizeof text));
        sum += rows[i].bytes;
    }
    printf("%-28s %10s\n", "together", size_format(sum, text, sizeof text));
    printf("%-28s %10s\n", "free", size_format(left, text, sizeof text));
    if (sum > left)
        return error_set(e, ERR_FIT,
                         "it does not fit: try --keep-activations 0, a smaller --train-batch with "
                         "more --accumulation, a smaller --rank, or --base q4_0");
    printf("It fits.\n");
    return fflush(stdout) ? output_failed(NULL, errno, e) : 0;
}

/* After a step that took so many seconds. */
static int show_step(struct run *r, const struct train_step *s, double seconds, struct error *e)
{
    uint64_t since = clock_now() - r->begun;

    if (r->screen) {
        train_view_step(r->view, s, seconds);
        return 0;
    }
    printf("step %d of %d: loss %.4f, gradient %.4g, lr %.3g, %.0f tokens/s, %.0f s\n", s->step,
           trainer_config(r->t)->steps, s->loss, s->grad_norm, s->lr,
           clock_rate((double)r->tokens, since), clock_seconds(since));
    return fflush(stdout) ? output_failed(NULL, errno, e) : 0;
}

static int show_valid(struct run *r, struct error *e)
{
    int step = trainer_state(r->t).step;

    if (r->screen) {
        train_view_valid(r->view, step, r->valid);
        return 0;
    }
    printf("after step %d: validation loss %.4f\n", step, r->valid);
    return fflush(stdout) ? output_failed(NULL, errno, e) : 0;
}

/* ---- output files ---- */

/* A full disk does not end a run: the old checkpoint remains, and the next one is tried. */
static void write_checkpoint(struct run *r)
{
    struct error why, line;

    if (checkpoint_write(r->t, r->checkpoint, &why) == 0) {
        r->behind = false;
        return;
    }
    if (!r->behind) {
        error_set(&line, ERR_IO, "%.400s; going on without a new checkpoint", why.text);
        say(r, line.text);
    }
    r->behind = true;
}

static int save(struct run *r, struct error *e)
{
    return save_adapter(trainer_modules(r->t), trainer_base(r->t), r->o->lora_out, e);
}

static int validate(struct run *r, struct error *e)
{
    int rc;

    if (!r->o->valid)
        return 0;
    if (r->screen)
        train_view_validating(r->view);
    if ((rc = trainer_validate(r->t, &r->valid, e)) < 0)
        return rc;
    train_log_valid(&r->log, trainer_state(r->t).step, r->valid);
    return show_valid(r, e);
}

/* ---- the run ---- */

/* The work due after a step. */
static int keep_up(struct run *r, struct error *e)
{
    const struct train_config *c = trainer_config(r->t);
    int step = trainer_state(r->t).step, rc = 0;

    if (step == c->steps || (c->save_every && step % c->save_every == 0))
        rc = validate(r, e);
    if (rc == 0 && c->save_every && step % c->save_every == 0 && step < c->steps)
        write_checkpoint(r);
    return rc;
}

static int step_on(struct run *r, struct error *e)
{
    int rc = 0;

    while (rc == 0 && trainer_state(r->t).step < trainer_config(r->t)->steps) {
        struct train_step s;
        double before = trainer_operations(r->t), seconds;
        uint64_t from = clock_now();

        if ((rc = trainer_step(r->t, &s, e)) < 0)
            break;
        r->loss = s.loss;
        r->tokens += s.tokens;
        seconds = clock_seconds(clock_now() - from);
        r->seconds += seconds;
        r->operations += trainer_operations(r->t) - before;
        train_log_step(&r->log, &s, seconds);
        if ((rc = show_step(r, &s, seconds, e)) == 0)
            rc = keep_up(r, e);
    }
    return rc;
}

static void *steps_main(void *arg)
{
    struct run *r = arg;

    r->rc = step_on(r, r->why);
    atomic_store(&r->over, true);
    return NULL;
}

/* Runs the steps on a separate thread, the screen on this one. */
static int steps_shown(struct run *r, struct error *e)
{
    pthread_t thread;

    r->why = e;
    if (pthread_create(&thread, NULL, steps_main, r))
        return error_set(e, ERR_MEMORY, "no thread for the steps");
    while (!atomic_load(&r->over))
        if (train_screen_step(r->screen, LOOK_MS)) {
            atomic_store(&r->leave, true);
            train_view_ending(r->view);
        }
    pthread_join(thread, NULL);
    return r->rc;
}

/* Restores the terminal, and prints the messages of the meantime. */
static void give_screen_back(struct run *r)
{
    struct ui_training last;

    train_screen_free(r->screen);
    r->screen = NULL;
    if (!r->view)
        return;
    train_view_look(r->view, &last);
    if (last.text[0])
        say(r, last.text);
}

/* An unsuitable terminal gets lines. */
static void take_screen(struct run *r, const char *model)
{
    struct error e = {0};

    if (!r->screen)
        return;
    if ((r->view = train_view_new(r->t, r->o->valid != NULL)) &&
        train_screen_open(r->screen, r->view, trainer_base(r->t)->model, model, &e) == 0)
        return;
    train_screen_free(r->screen);
    r->screen = NULL;
    fprintf(stderr, "moetop: %s; going on line by line\n", r->view ? e.text : "out of memory");
}

static int run_steps(struct run *r, const char *model, struct error *e)
{
    int rc;

    take_screen(r, model);
    r->first = trainer_state(r->t).step;
    r->begun = clock_now();
    rc = r->screen ? steps_shown(r, e) : step_on(r, e);
    give_screen_back(r);
    return rc;
}

/* --stats: time per step and memory, and the rate of the products alone. */
static int show_stats(const struct run *r, struct error *e)
{
    const struct train_memory m = trainer_memory(r->t);
    int steps = trainer_state(r->t).step - r->first;
    double peak, rate = r->seconds > 0 ? r->operations / r->seconds : 0;
    struct rusage used;
    char a[24], b[24];
    int rc;

    if (!r->o->stats || !steps)
        return 0;
    getrusage(RUSAGE_SELF, &used);
    if ((rc = peak_measure(trainer_base(r->t), r->threads,
                           (int)(r->tokens / steps) / trainer_config(r->t)->accumulation,
                           PEAK_SECONDS, &peak, e)) < 0)
        return rc;
    fprintf(
        stderr,
        "moetop: %.2f s a step of %lld tokens; memory %s at most, of %s stated\n"
        "moetop: products of the frozen weights: %.0f GFLOP a step, %.0f GFLOP/s, %.0f %% of the "
        "%.0f GFLOP/s that F32 products of these shapes reach alone\n",
        r->seconds / steps, (long long)(r->tokens / steps),
        size_format((uint64_t)used.ru_maxrss << 10, a, sizeof a),
        size_format(m.base + m.adapter + m.batch + PROGRAM, b, sizeof b),
        1e-9 * r->operations / steps, 1e-9 * rate, 100 * rate / peak, 1e-9 * peak);
    return 0;
}

static int diverged(const struct run *r, struct error *e)
{
    char text[400];

    snprintf(text, sizeof text, "%.300s", e->text);
    return error_set(e, ERR_VALUE, "%s; %s holds what the last sound step had", text,
                     r->o->lora_out);
}

/* However the run ended, the trained adapter is saved. */
static int end(struct run *r, int rc, struct error *e)
{
    int step = trainer_state(r->t).step;
    struct error why = {0};

    if (rc < 0 && rc != ERR_VALUE)
        write_checkpoint(r);
    if (step && save(r, &why) < 0) {
        if (rc == 0)
            write_checkpoint(r);
        return rc < 0 ? rc : error_set(e, ERR_IO, "%s", why.text);
    }
    if (rc == ERR_CANCELLED)
        return error_set(e, rc, "interrupted after step %d of %d; the same command goes on there",
                         step, trainer_config(r->t)->steps);
    if (rc == ERR_VALUE && step)
        return diverged(r, e);
    if (rc < 0)
        return rc;
    unlink(r->checkpoint);
    printf("%s%s: an adapter of %d matrices, %d step%s, loss %.4f", r->o->lora_out,
           trainer_modules(r->t)->peft ? "" : "/adapter.gguf", trainer_modules(r->t)->n, step,
           plural(step), r->loss);
    if (!isnan(r->valid))
        printf(", validation loss %.4f", r->valid);
    printf(", in %.1f s\n", clock_seconds(clock_now() - r->begun));
    return fflush(stdout) ? output_failed(NULL, errno, e) : 0;
}

static int begin(struct run *r, struct error *e)
{
    int rc;

    if (mkdir(r->o->lora_out, 0777) && errno != EEXIST)
        return error_set(e, ERR_IO, "--lora-out %s: cannot be made: %s", r->o->lora_out,
                         strerror(errno));
    if (snprintf(r->checkpoint, sizeof r->checkpoint, "%s/" CHECKPOINT, r->o->lora_out) >=
        (int)sizeof r->checkpoint)
        return error_set(e, ERR_USAGE, "--lora-out: the name is too long");
    if ((rc = checkpoint_read(r->t, r->checkpoint, e)) < 0)
        return rc;
    if (rc == 1)
        fprintf(stderr, "moetop: %s: going on after step %d\n", r->checkpoint,
                trainer_state(r->t).step);
    r->log.say = say;
    r->log.ctx = r;
    return train_log_open(&r->log, r->o->train_log, trainer_state(r->t).step, e);
}

static int open_trainer(struct run *r, const char *model, const struct stop *stop, struct error *e)
{
    const struct options *o = r->o;
    struct trainer_options t = {.model = model,
                                .data = o->finetune,
                                .valid = o->valid,
                                .init = o->lora_init,
                                .threads = r->threads,
                                .stop = stop};
    int rc = train_settings(&t.config, o, e);

    return rc < 0 ? rc : trainer_open(&r->t, &t, e);
}

static int train(struct run *r, const char *model, struct error *e)
{
    const struct stop stop = {ended, r};
    struct error why = {0};
    int rc;

    r->threads = r->o->threads > 0 ? r->o->threads : topology_default_threads();
    if (!r->o->fit && screen_loop_wanted(r->o) && (rc = train_screen_new(&r->screen, r->o, e)) < 0)
        return rc;
    if ((rc = open_trainer(r, model, &stop, e)) < 0)
        return rc;
    if (r->o->fit)
        return show_fit(r, e);
    if ((rc = begin(r, e)) < 0)
        return rc;
    show_model(r);
    rc = end(r, run_steps(r, model, e), e);
    if (rc == 0)
        rc = show_stats(r, e);
    if (train_log_close(&r->log, &why) < 0 && rc == 0)
        rc = error_set(e, ERR_IO, "%s", why.text);
    return rc;
}

int train_run(struct options *o, struct error *e)
{
    static struct run r;
    char model[PATH_MAX];
    int rc;

    r = (struct run){.o = o, .valid = NAN};
    if (!o->lora_out && !o->fit)
        return error_set(e, ERR_USAGE,
                         "--finetune needs a folder for the adapter: --lora-out FOLDER");
    if (o->lora.n || o->lora_scaled.n)
        return error_set(e, ERR_USAGE,
                         "--finetune trains one adapter; to begin with another one: --lora-init");
    if ((rc = paths_model(o->model, model, sizeof model, e)) < 0)
        return rc;
    signals_catch();
    rc = train(&r, model, e);
    train_screen_free(r.screen);
    train_view_free(r.view);
    trainer_close(r.t);
    return rc;
}
