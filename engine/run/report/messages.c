/* Release functions and words of the messages. Any thread. */
#include "engine/run/report/messages.h"

#include "engine/base/mem.h"

#include <jansson.h>
#include <string.h>

const char *stop_reason_word(enum stop_reason r)
{
    static const char *const words[] = {"none",    "stop",   "length", "cancelled",
                                        "context", "string", "error"};

    return (unsigned)r < sizeof words / sizeof *words ? words[r] : "unknown";
}

void dialogue_release(struct dialogue *d)
{
    for (size_t i = 0; i < d->n_messages; i++) {
        mem_free(d->messages[i].text);
        mem_free(d->messages[i].reasoning);
        json_decref(d->messages[i].members);
    }
    json_decref(d->given);
    mem_free(d->messages);
    memset(d, 0, sizeof *d);
}

void turn_release(struct turn *t)
{
    for (size_t i = 0; i < t->n_stops; i++)
        mem_free(t->stops[i]);
    mem_free(t->prompt.ids);
    mem_free(t->stops);
    mem_free(t->begun);
    grammar_free(t->grammar);
    expert_edits_free(t->edits);
    memset(t, 0, sizeof *t);
}

void command_release(struct command *c)
{
    switch (c->kind) {
    case COMMAND_TURN: turn_release(&c->turn); break;
    case COMMAND_PLAN:
        plan_free(c->plan);
        c->plan = NULL;
        break;
    case COMMAND_PLACE:
        mem_free(c->text);
        c->text = NULL;
        break;
    case COMMAND_CALL:
        if (c->call.release)
            c->call.release(c->call.ctx);
        c->call.ctx = NULL;
        c->call.release = NULL;
        break;
    case COMMAND_SAMPLING:
    case COMMAND_PACE:
    case COMMAND_AUDIT:
    case COMMAND_EXPERT:
    case COMMAND_TIMELINE:
    case COMMAND_CLEAR:
    case COMMAND_OPEN:
    case COMMAND_CLOSE:
    case COMMAND_QUIT: break;
    }
}

void event_taken(struct event *e)
{
    e->text = NULL;
    if (e->kind == EVENT_EMBEDDING)
        e->embedding.values = NULL;
}

void event_release(struct event *e)
{
    mem_free(e->text);
    if (e->kind == EVENT_EMBEDDING)
        mem_free(e->embedding.values);
    event_taken(e);
}
