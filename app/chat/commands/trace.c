/* /routing-trace: which experts every token chooses is recorded from here on, or no longer. The UI
 * thread parses the command, the engine's thread begins and ends the trace between two answers. */
#include "app/chat/commands/internal.h"

#include "app/chat/conversation.h"
#include "app/chat/internal.h"
#include "app/lab/routing.h"
#include "engine/base/mem.h"
#include "engine/run/engine.h"

#include <string.h>

struct wish {
    char *path; /* NULL: none */
    bool off, scores, logprobs;
};

static void release(void *ctx)
{
    struct wish *w = ctx;

    mem_free(w->path);
    mem_free(w);
}

static int record(void *ctx, struct engine *g, char **text, struct error *e)
{
    const struct wish *w = ctx;
    struct strbuf b = {0};
    const char *path = routing_recorded_path();
    char *name = path ? mem_string(path) : NULL;
    uint64_t n;
    int rc = 0;

    if (w->path || w->off)
        rc = routing_record(g, w->path, w->scores, w->logprobs, &n, e);
    if (rc == 0 && w->path)
        strbuf_printf(&b, "routing is recorded in %s from here on; /routing-trace off ends it\n",
                      w->path);
    else if (rc == 0 && w->off)
        strbuf_printf(&b, "%s: the routing of %llu tokens; --routing-report reads it\n",
                      name ? name : "", (unsigned long long)n);
    else if (rc == 0)
        strbuf_printf(&b, "%s%s\n", name ? "routing is recorded in " : "no routing is recorded",
                      name ? name : "");
    mem_free(name);
    if (rc == 0 && !(*text = strbuf_take(&b, NULL)))
        rc = error_set(e, ERR_MEMORY, "out of memory");
    strbuf_release(&b);
    return rc;
}

/* Whether the arguments begin with the word and a blank, which are then left out. */
static bool take(const char **arguments, const char *word)
{
    size_t n = strlen(word);

    if (strncmp(*arguments, word, n) || (*arguments)[n] != ' ')
        return false;
    *arguments = chat_blank(*arguments + n + 1);
    return true;
}

/* "", "off", "[scores] [logprobs] FILE"; false: none of these, or no memory. */
static bool read(const char *arguments, struct wish *w)
{
    if (strcmp(arguments, "off") == 0)
        return w->off = true;
    w->scores = take(&arguments, "scores");
    w->logprobs = take(&arguments, "logprobs");
    return !*arguments ? !w->scores && !w->logprobs : (w->path = mem_string(arguments)) != NULL;
}

int chat_routing_trace(struct conversation *c, const char *arguments)
{
    struct wish *w = mem_alloc(1, sizeof *w);

    if (!w || !read(arguments, w)) {
        if (w)
            release(w);
        conversation_say(c, SAY_NOTICE,
                         "/routing-trace FILE (.jsonl or .safetensors); scores FILE, logprobs "
                         "FILE, scores logprobs FILE: with the routers' scores, the tokens' "
                         "log-probabilities, too; off: ends it");
        return -1;
    }
    return conversation_call(c, record, w, release);
}
