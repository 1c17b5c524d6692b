/* /expert: edits of the routing of the chat's session (engine/device/expert_edits.h), which the
 * next answer is compared without (app/chat/conversation_shadow.c). The UI thread hands the line
 * over, the engine's reads and applies it between two answers. */
#include "app/chat/commands/internal.h"

#include "app/chat/internal.h"
#include "engine/model/model.h"
#include "engine/run/engine.h"

#include <stdio.h>
#include <string.h>

struct wish {
    char line[480]; /* "": list them */
};

static int edit(struct engine *g, const char *line, int *again, struct error *e)
{
    struct session *s = engine_session(g);
    struct expert_edits *x;
    int rc = expert_edits_read(&x, engine_session_edits(s), &engine_info(g)->model->hp, &line, 1,
                               e);

    if (rc < 0)
        return rc;
    *again = engine_session_edits_set(s, x, e);
    expert_edits_free(x); /* the session has its own reference */
    return *again < 0 ? *again : 0;
}

static int do_edit(void *ctx, struct engine *g, char **text, struct error *e)
{
    const struct wish *w = ctx;
    const struct expert_edits *x;
    struct strbuf b = {0};
    int again = 0, rc = w->line[0] ? edit(g, w->line, &again, e) : 0;

    if (rc < 0)
        return rc;
    x = engine_session_edits(engine_session(g));
    if (x)
        strbuf_printf(&b, "%d expert%s edited: %s", x->n, x->n == 1 ? "" : "s", x->text);
    else
        strbuf_puts(&b, "no expert is edited");
    if (again)
        strbuf_printf(&b,
                      "; %d tokens that were computed otherwise are computed again with the next "
                      "message",
                      again);
    if (w->line[0] && x)
        strbuf_puts(&b, "; the next answer is compared with the one without edits; /expert on "
                        "undoes all");
    strbuf_puts(&b, "\n");
    *text = strbuf_take(&b, NULL);
    return *text ? 0 : error_set(e, ERR_MEMORY, "out of memory");
}

int chat_expert_edit(struct conversation *c, const char *arguments)
{
    struct wish w;

    if (strlen(arguments) >= sizeof w.line) {
        conversation_say(c, SAY_NOTICE,
                         "/expert: the edit is too long; --expert-edit reads a file");
        return -1;
    }
    snprintf(w.line, sizeof w.line, "%s", arguments);
    return conversation_shadow_call(c, do_edit, &w, sizeof w, w.line[0] != 0);
}
