/* See remarks.h. */
#include "app/setup/remarks.h"

#include "engine/text/chat_template.h"

#include <stdio.h>

#define WARM 2.0  /* temperature above which the text is noise */
#define HARSH 2.0 /* repeat-penalty above which no token is repeated */

bool remark_option(const struct options *o, const struct option *option, char *out, size_t size)
{
    switch ((enum option_id)(option - option_table)) {
    case OPTION_ID_temp:
        if (o->temp <= WARM)
            return false;
        snprintf(out, size, "temp %g draws nearly at random; usual values are 0 to 1.5", o->temp);
        return true;
    case OPTION_ID_top_p:
        if (o->top_p > 0)
            return false;
        snprintf(out, size,
                 "top-p 0 always takes the most probable token, as temp 0 does; 1 keeps all");
        return true;
    case OPTION_ID_min_p:
        if (o->min_p < 1)
            return false;
        snprintf(out, size,
                 "min-p 1 always takes the most probable token, as temp 0 does; off keeps all");
        return true;
    case OPTION_ID_repeat_penalty:
        if (o->repeat_penalty >= 1 && o->repeat_penalty <= HARSH)
            return false;
        snprintf(out, size, "repeat-penalty %g %s; usual values are 1 to 1.3", o->repeat_penalty,
                 o->repeat_penalty < 1 ? "rewards repetition"
                                       : "forbids nearly every word that occurred");
        return true;
    default: return false;
    }
}

void remarks_each(const struct options *o, const struct engine_info *info,
                  void (*line_fn)(void *ctx, const char *line), void *ctx)
{
    int trained = info->model->hp.context_max;
    char line[240];

    for (int i = 0; i < OPTION_COUNT; i++)
        if (remark_option(o, &option_table[i], line, sizeof line))
            line_fn(ctx, line);
    if (o->reasoning != REASONING_AUTO && info->chat &&
        !chat_template_asks(info->chat, "enable_thinking") &&
        !chat_template_asks(info->chat, "thinking"))
        line_fn(ctx, "--reasoning does nothing here: the model's chat template has no such switch");
    if (trained <= 0 || info->context <= trained)
        return;
    snprintf(line, sizeof line,
             "the context of %d tokens (-c) is longer than the %d that the model was trained with: "
             "what is said beyond them may make "
             "no sense",
             info->context, trained);
    line_fn(ctx, line);
}
