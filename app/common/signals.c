/* Interruption by signal. The handler only records the number; the rest happens where
 * signals_last() is polled, between the layers of a pass too (engine_config.stop). A second SIGINT
 * ends the process at once, so that Ctrl-C twice works even if the program hangs. */
#include "app/common/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static atomic_int last;
static bool output_gone; /* used by the main thread only */

static void on_signal(int number)
{
    if (atomic_exchange(&last, number) && number == SIGINT)
        _exit(130);
}

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

void signals_release(void)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        signal(numbers[i], SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
}

void signals_catch(void)
{
    /* no SA_RESTART: a read of standard input ends */
    struct sigaction a = {.sa_handler = on_signal};

    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &a, NULL);
    a.sa_handler = SIG_IGN;
    /* writing then fails with EPIPE, and the mode ends: output_failed */
    sigaction(SIGPIPE, &a, NULL);
}

int output_failed(const char *what, int why, struct error *e)
{
    if (why == EPIPE) {
        output_gone = true;
        return error_set(e, ERR_IO, "%s", "");
    }
    return error_set(e, ERR_IO, "cannot write %s%sto standard output: %s", what ? what : "",
                     what ? " " : "", strerror(why));
}

bool output_is_gone(void)
{
    return output_gone;
}

int signals_last(void)
{
    return atomic_load(&last);
}

int signals_stop(void *ctx)
{
    (void)ctx;
    return signals_last();
}

int signals_check(struct error *e)
{
    return signals_last() ? error_set(e, ERR_CANCELLED, "interrupted") : 0;
}
