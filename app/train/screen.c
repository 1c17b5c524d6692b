/* See screen.h. */
#include "app/train/screen.h"

#include "app/common/machine_view.h"
#include "app/setup/screen/screen_loop.h"
#include "engine/base/mem.h"
#include "engine/file/dtype.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct train_screen {
    struct screen_loop loop;
    struct machine_view *machine;
    struct train_view *view;
    struct ui_training shown; /* the newest copy */
    uint64_t sampled_ns;
};

static void look(void *ctx, uint64_t now)
{
    struct train_screen *s = ctx;

    train_view_look(s->view, &s->shown);
    if (now - s->sampled_ns >= s->loop.model.settle_ns) {
        machine_view_take(s->machine, &s->loop.model, NULL, now);
        s->sampled_ns = now;
    }
    s->loop.model.dirty = true;
}

int train_screen_new(struct train_screen **out, const struct options *o, struct error *e)
{
    static const struct screen_loop_calls calls = {look, NULL};
    struct train_screen *s = mem_alloc(1, sizeof *s);
    int rc;

    *out = s;
    if (!s)
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    if ((rc = screen_loop_init(&s->loop, o, e)) < 0)
        return rc;
    s->loop.model.training = &s->shown;
    s->loop.model.loading = false; /* the model is loaded before the screen opens */
    if (!(s->machine = machine_view_new()))
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    return screen_loop_prepare(&s->loop, KEYS_TRAINING, &calls, s, e);
}

/* "phi-tiny-moe", "Q4_0" */
static void name_model(struct ui_model *m, const struct model *model, const char *path)
{
    size_t n = strlen(path);
    const char *base;

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (base = path + n; base > path && base[-1] != '/'; base--)
        ;
    snprintf(m->model_name, sizeof m->model_name, "%.*s", (int)(path + n - base), base);
    snprintf(m->model_type, sizeof m->model_type, "%s", dtype_info(model->type)->word);
    for (char *p = m->model_type; *p; p++)
        *p = (char)toupper((unsigned char)*p);
}

int train_screen_open(struct train_screen *s, struct train_view *view, const struct model *model,
                      const char *path, struct error *e)
{
    struct error theme;
    int rc;

    s->view = view;
    name_model(&s->loop.model, model, path);
    if ((rc = screen_loop_open(&s->loop, &theme, e)) == 0 && theme.text[0])
        train_view_say(view, theme.text);
    return rc;
}

bool train_screen_step(struct train_screen *s, int ms)
{
    return screen_loop_step(&s->loop, ms);
}

void train_screen_free(struct train_screen *s)
{
    if (!s)
        return;
    screen_loop_release(&s->loop);
    machine_view_free(s->machine);
    mem_free(s);
}
