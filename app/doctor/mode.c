/* --doctor. Main thread. */
#include "app/doctor/doctor.h"

#include "app/common/report_format.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool doctor_wanted(const struct options *o)
{
    return o->doctor;
}

static void tell(void *ctx, const char *line)
{
    fprintf(stderr, "moetop: %s\n", line);
}

static int put_json(FILE *f, const void *ctx, struct error *e)
{
    return report_json(f, doctor_json(ctx), JSON_INDENT(2), e);
}

static int put_page(const struct doctor *d, struct error *e)
{
    const struct doctor_place *p = &d->place;
    struct strbuf b = {0};
    int rc = 0;

    doctor_print(d, &b, p->terminal ? p->columns : 80,
                 p->terminal && p->colours >= 8 && !p->no_color);
    if (b.failed)
        rc = error_set(e, ERR_MEMORY, "out of memory for the doctor's page");
    else
        fputs(strbuf_text(&b), stdout);
    strbuf_release(&b);
    return rc;
}

static int put(const struct doctor *d, const char *json, struct error *e)
{
    int rc = 0;

    if (json && strcmp(json, "-") == 0)
        return put_json(stdout, d, e);
    if (json && (rc = report_file(json, put_json, d, e)) < 0)
        return rc;
    return put_page(d, e);
}

int doctor_run(struct options *o, struct error *e)
{
    struct doctor *d = mem_alloc(1, sizeof *d); /* too large for the stack */
    struct doctor_asked *asked;
    int rc, bad;

    if (!d)
        return error_set(e, ERR_MEMORY, "out of memory for the doctor");
    if ((rc = doctor_ask(&asked, o, &d->place, e)) == 0) {
        doctor_measure(asked, 0, &d->measures, tell, NULL);
        doctor_examine(d);
        rc = put(d, o->report_json, e);
        bad = doctor_count(d, DOCTOR_BAD);
        if (rc == 0 && bad)
            rc = error_set(e, ERR_INPUT, "%d of %d findings %s bad", bad, d->n,
                           bad == 1 ? "is" : "are");
        doctor_asked_free(asked);
    }
    mem_free(d);
    return rc;
}
