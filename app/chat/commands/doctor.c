/* The slash command /doctor: the page of --doctor. The surroundings are read on the UI thread;
 * measuring, for some seconds, is the engine's, between two answers. */
#include "app/chat/commands/internal.h"

#include "app/doctor/doctor.h"
#include "engine/base/mem.h"

#define BEFORE 2 /* columns of the page's frame */

struct request {
    struct doctor doctor;
    struct doctor_asked *asked;
    int columns;
};

static void release(void *ctx)
{
    struct request *r = ctx;

    doctor_asked_free(r->asked);
    mem_free(r);
}

static void progress(void *ctx, const char *line)
{
    engine_progress(ctx, line);
}

static int do_doctor(void *ctx, struct engine *g, char **text, struct error *e)
{
    const struct telemetry *t = engine_telemetry(g);
    struct request *r = ctx;
    struct strbuf b = {0};

    doctor_measure(r->asked, telemetry_held(t),
                   &r->doctor.measures, progress, g);
    doctor_examine(&r->doctor);
    doctor_print(&r->doctor, &b, r->columns, false);
    *text = strbuf_take(&b, NULL);
    return *text ? 0 : error_set(e, ERR_MEMORY, "out of memory for the doctor's page");
}

int chat_doctor(struct conversation *c, const char *arguments)
{
    struct request *r = mem_alloc(1, sizeof *r);
    struct error e = {0};

    if (!r || doctor_ask(&r->asked, conversation_options(c), &r->doctor.place, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", r ? e.text : "out of memory");
        mem_free(r);
        return -1;
    }
    r->columns = (int)chat_columns(c, BEFORE);
    conversation_say(c, SAY_NOTICE, "measuring this machine ...");
    return conversation_call(c, do_doctor, r, release);
}
