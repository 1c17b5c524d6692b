/* The real program in a real terminal: runs tests/smoke_tmux.sh on this build's moetop. */
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(in_tmux)
{
    const char *build = getenv("CHECK_BUILD");
    char moetop[600], command[1400];
    int status;

    snprintf(moetop, sizeof moetop, "%s/%s/moetop", support_root(),
             build ? build : "build/release");
    if (access(moetop, X_OK) != 0) {
        support_skip("%s is not built", moetop);
        return;
    }
    snprintf(command, sizeof command, "sh '%s' '%s'", support_path("smoke_tmux.sh"), moetop);
    fflush(stdout);
    status = system(command);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        return; /* it said why */
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                  "the smoke test failed; its steps are above");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("smoke");
    TCase *t = tcase_create("smoke");

    tcase_set_timeout(t, 230);
    tcase_add_test(t, in_tmux);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
