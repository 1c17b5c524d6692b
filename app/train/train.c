/* See train.h. What a run leaves in its folder: the adapter, and while it is not done a checkpoint.
 */
#include "app/train/train.h"

#include "app/common/memory_left.h"
#include "app/common/paths.h"
#include "app/common/progress.h"
#include "app/common/signals.h"
#include "app/train/log.h"
#include "app/train/settings.h"
#include "engine/base/clock.h"
#include "engine/base/size.h"
#include "engine/base/topology.h"
#include "engine/train/checkpoint.h"
#include "engine/train/save.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECKPOINT "training.checkpoint"
#define PROGRAM ((uint64_t)32 << 20) /* bytes: code, libraries, what oneDNN makes of a product */

struct run {
    const struct options *o;
    struct trainer *t;
    struct train_log log;
    struct progress bar;
    char checkpoint[PATH_MAX];
    uint64_t begun;
    int64_t tokens; /* since it began */
    double loss;    /* of the last step */
    bool behind;    /* a checkpoint could not be written, which was told */
};

bool train_wanted(const struct options *o)
{
    return o->finetune != NULL;
}

static bool signalled(void *ctx)
{
    return signals_last() != 0;
}

/* ---- what is shown ---- */

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

/* --fit: what it takes, of what is free. */
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
                         "it does not fit: try a smaller --train-batch with more --accumulation, a "
                         "smaller --rank, or --base q4_0");
    printf("It fits.\n");
    return fflush(stdout) ? output_failed(NULL, errno, e) : 0;
}

static int show_step(struct run *r, const struct train_step *s, struct error *e)
{
    uint64_t since = clock_now() - r->begun;
    double seconds = clock_seconds(since), rate = clock_rate((double)r->tokens, since);
    char note[96];

    if (r->o->plain) {
        printf("step %d of %d: loss %.4f, gradient %.4g, lr %.3g, %.0f tokens/s, %.0f s\n", s->step,
               trainer_config(r->t)->steps, s->loss, s->grad_norm, s->lr, rate, seconds);
        return fflush(stdout) ? output_failed(NULL, errno, e) : 0;
    }
    snprintf(note, sizeof note, "loss %.4f, %.0f tokens/s", s->loss, rate);
    progress_draw(&r->bar, s->step, trainer_config(r->t)->steps, note);
    return 0;
}

/* ---- what is kept ---- */

/* A disk without room does not end a run: the old checkpoint is there, the next one is tried. */
static void write_checkpoint(struct run *r)
{
    struct error why;

    if (checkpoint_write(r->t, r->checkpoint, &why) == 0) {
        r->behind = false;
        return;
    }
    if (!r->behind)
        fprintf(stderr, "moetop: %s; going on without a new checkpoint\n", why.text);
    r->behind = true;
}

static int save(struct run *r, struct error *e)
{
    return save_adapter(trainer_modules(r->t), trainer_base(r->t), r->o->lora_out, e);
}

static int validate(struct run *r, struct error *e)
{
    double loss;
    int rc;

    if (!r->o->valid)
        return 0;
    if ((rc = trainer_validate(r->t, &loss, e)) < 0)
        return rc;
    train_log_valid(&r->log, trainer_state(r->t).step, loss);
    if (!r->o->plain)
        return 0;
    printf("after step %d: validation loss %.4f\n", trainer_state(r->t).step, loss);
    return fflush(stdout) ? output_failed(NULL, errno, e) : 0;
}

/* ---- the run ---- */

/* What is due behind a step. */
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
        uint64_t from = clock_now();

        if ((rc = trainer_step(r->t, &s, e)) < 0)
            break;
        r->loss = s.loss;
        r->tokens += s.tokens;
        train_log_step(&r->log, &s, clock_seconds(clock_now() - from));
        if ((rc = show_step(r, &s, e)) == 0)
            rc = keep_up(r, e);
    }
    return rc;
}

static int diverged(const struct run *r, struct error *e)
{
    char text[400];

    snprintf(text, sizeof text, "%.300s", e->text);
    return error_set(e, ERR_VALUE, "%s; %s holds what the last sound step had", text,
                     r->o->lora_out);
}

/* However it ended, what was learned is kept. */
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
    printf("%s%s: an adapter of %d matrices, %d step%s, loss %.4f, in %.1f s\n", r->o->lora_out,
           trainer_modules(r->t)->peft ? "" : "/adapter.gguf", trainer_modules(r->t)->n, step,
           plural(step), r->loss, clock_seconds(clock_now() - r->begun));
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
    return train_log_open(&r->log, r->o->train_log, trainer_state(r->t).step, e);
}

static int open_trainer(struct run *r, const char *model, const struct stop *stop, struct error *e)
{
    const struct options *o = r->o;
    struct trainer_options t = {.model = model,
                                .data = o->finetune,
                                .valid = o->valid,
                                .init = o->lora_init,
                                .threads = o->threads > 0 ? o->threads : topology_default_threads(),
                                .stop = stop};
    int rc = train_settings(&t.config, o, e);

    return rc < 0 ? rc : trainer_open(&r->t, &t, e);
}

int train_run(struct options *o, struct error *e)
{
    const struct stop stop = {signalled, NULL};
    static struct run r;
    struct error why = {0};
    char model[PATH_MAX];
    int rc;

    r = (struct run){.o = o};
    if (!o->lora_out && !o->fit)
        return error_set(e, ERR_USAGE,
                         "--finetune needs a folder for the adapter: --lora-out FOLDER");
    if (o->lora.n || o->lora_scaled.n)
        return error_set(e, ERR_USAGE,
                         "--finetune trains one adapter; to begin with another one: --lora-init");
    if ((rc = paths_model(o->model, model, sizeof model, e)) < 0)
        return rc;
    signals_catch();
    rc = open_trainer(&r, model, &stop, e);
    if (rc == 0 && o->fit) {
        rc = show_fit(&r, e);
    } else if (rc == 0 && (rc = begin(&r, e)) == 0) {
        show_model(&r);
        progress_begin(&r.bar, "finetune");
        r.begun = clock_now();
        rc = step_on(&r, e);
        progress_end(&r.bar);
        rc = end(&r, rc, e);
        if (train_log_close(&r.log, &why) < 0 && rc == 0)
            rc = error_set(e, ERR_IO, "%s", why.text);
    }
    trainer_close(r.t);
    return rc;
}
