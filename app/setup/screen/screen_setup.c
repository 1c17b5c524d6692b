/* See screen_setup.h. */
#include "app/setup/screen/screen_setup.h"

#include "app/setup/screen/theme_file.h"

#include <langinfo.h>
#include <locale.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

int screen_locale(bool *utf8, struct error *e)
{
    *utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (*utf8)
        return 0;
    /* in a C or Latin-1 locale curses and readline would treat UTF-8 as bytes */
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        return error_set(e, ERR_USAGE,
                         "the locale is not UTF-8 and there is no C.UTF-8; use --plain");
    /* readline reads the environment, and so does the editor */
    setenv("LC_ALL", "C.UTF-8", 1);
    return 0;
}

static bool colour_wanted(const struct options *o)
{
    const char *no = getenv("NO_COLOR");

    return o->color == 1 || (o->color == 0 && !(no && *no));
}

int screen_terminal_open(struct terminal **out, const struct options *o, bool utf8, struct error *e)
{
    struct terminal_options t = {.type = getenv("TERM"),
                                 .colour = colour_wanted(o),
                                 .mouse = o->mouse,
                                 .ask_ground = !o->theme || !o->theme[0],
                                 .ground = getenv("COLORFGBG"),
                                 .utf8 = utf8};

    return terminal_open(out, STDIN_FILENO, STDOUT_FILENO, &t, e);
}

int screen_theme_take(struct theme *theme, const struct terminal *t, const struct options *o,
                      struct error *e)
{
    const char *name = o->theme && o->theme[0] ? o->theme
                       : terminal_light(t) > 0 ? "light"
                       : terminal_light(t) < 0 ? "either"
                                               : NULL;

    theme->depth = terminal_depth(t);
    theme->ascii = !terminal_utf8(t);
    return name ? theme_file_load(theme, name, e) : 0;
}

int screen_signals_open(bool all, sigset_t *old)
{
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t mask;

    sigemptyset(&mask);
    sigaddset(&mask, SIGWINCH);
    sigaddset(&mask, SIGTSTP);
    sigaddset(&mask, SIGCONT);
    for (size_t i = 0; all && i < sizeof ending / sizeof *ending; i++)
        sigaddset(&mask, ending[i]);
    pthread_sigmask(SIG_BLOCK, &mask, old);
    return signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
}
