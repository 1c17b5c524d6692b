/* The doctor's check of the terminal. Which characters its font has cannot be asked; what is known
 * is what kind of terminal it says it is. */
#include "app/doctor/internal.h"

#include <string.h>

static void check_colours(struct doctor *d)
{
    const struct doctor_place *p = &d->place;
    struct doctor_finding *f;

    if (p->no_color) {
        f = doctor_find(d, DOCTOR_NOTE, "colours", "none, as NO_COLOR is set");
        doctor_remedy(f, "", "unset NO_COLOR, or --color always");
    } else if (p->colours < 0) {
        f = doctor_find(d, DOCTOR_WARN, "colours", "the terminal type \"%s\" is not known here",
                        p->term ? p->term : "");
        doctor_remedy(f, "export TERM=xterm-256color",
                      "install ncurses-term, or export TERM=xterm-256color");
    } else if (p->colours < 256) {
        f = doctor_find(d, DOCTOR_NOTE, "colours", "%d of 256 (TERM=%s): heat maps have few shades",
                        p->colours, p->term ? p->term : "");
        doctor_remedy(f, "export TERM=xterm-256color",
                      "export TERM=xterm-256color, if the terminal has them");
    } else {
        doctor_find(d, DOCTOR_OK, "colours", "%d (TERM=%s)", p->colours, p->term);
    }
}

void doctor_check_terminal(struct doctor *d)
{
    const struct doctor_place *p = &d->place;
    struct doctor_finding *f;

    if (!p->term || !p->term[0] || strcmp(p->term, "dumb") == 0) {
        f = doctor_find(d, DOCTOR_NOTE, "terminal", "TERM is %s: the chat is line by line",
                        p->term && p->term[0] ? p->term : "not set");
        doctor_remedy(f, "", "set TERM to what the terminal is");
        return;
    }
    check_colours(d);
    if (!p->codeset || strcmp(p->codeset, "UTF-8")) {
        f = doctor_find(d, DOCTOR_WARN, "characters", "the locale's are %s, not UTF-8",
                        p->codeset ? p->codeset : "unknown");
        doctor_remedy(f, "export LC_ALL=C.UTF-8", "export LC_ALL=C.UTF-8");
    } else if (strncmp(p->term, "linux", 5) == 0) {
        f = doctor_find(d, DOCTOR_NOTE, "font",
                        "the console's font has 512 characters: no emoji, "
                        "few signs");
        doctor_remedy(f, "", "a terminal window, or ssh from one, shows everything");
    } else {
        doctor_find(d, DOCTOR_OK, "characters", "UTF-8; whether the font has ▁▄█ ⣿ 漢, you see");
    }
    if (p->terminal && (p->columns < 80 || p->rows < 24)) {
        f = doctor_find(d, DOCTOR_NOTE, "size", "%d × %d: panels need 80 × 24 or more", p->columns,
                        p->rows);
        doctor_remedy(f, "", "make the window larger, or its font smaller");
    }
}
