/* See progress.h. */
#include "app/common/progress.h"

#include "engine/base/clock.h"

#include <stdio.h>
#include <unistd.h>

#define WIDTH 20

void progress_begin(struct progress *p, const char *what)
{
    *p = (struct progress){.what = what, .begun = clock_now()};
}

static void say_line(struct progress *p, double done, double total, bool over, uint64_t now)
{
    if (!p->lines || total <= 0.0 || (p->drawn_at && now - p->drawn_at < CLOCK_SECOND && !over))
        return;
    p->drawn_at = now;
    fprintf(stderr, "moetop: %s %.0f of %.0f bytes\n", p->what, done, total);
}

void progress_draw(struct progress *p, double done, double total, const char *note)
{
    uint64_t now = clock_now();
    bool known = total > 0.0, over = known && done >= total;
    double part = known ? done / total : 0.0;
    double seconds = clock_seconds(now - p->begun), came = done - p->already;
    long left = known && came > 0.0 ? (long)(seconds * (total - done) / came + 0.5) : 0;
    int full = (int)(part * WIDTH);

    if (!isatty(STDERR_FILENO)) {
        say_line(p, done, total, over, now);
        return;
    }
    if (now - p->drawn_at < 200 * CLOCK_MILLI && !over)
        return;
    p->drawn_at = now;
    p->drawn = true;
    fprintf(stderr, "\r%s", p->what);
    if (known)
        fprintf(stderr, " [%.*s%.*s] %3.0f %%", full, "####################", WIDTH - full,
                "....................", 100.0 * part);
    if (known && came > 0.0)
        fprintf(stderr, ", %ld:%02ld left", left / 60, left % 60);
    fprintf(stderr, "%s%s ", note ? ", " : "", note ? note : "");
    fflush(stderr);
}

void progress_end(struct progress *p)
{
    if (p->drawn)
        fprintf(stderr, "\r%79s\r", "");
    p->drawn = false;
}
