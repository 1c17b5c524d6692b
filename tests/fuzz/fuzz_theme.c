/* Any bytes as a theme file: an error line or a theme whose every colour a terminal has, never a
 * crash, a leak or a hang. */
#include "app/setup/screen/theme_file.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void colour_check(int16_t c)
{
    if (c < -1 || c > 255)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct theme t;
    struct error e = {0};

    theme_init(&t);
    if (theme_parse(&t, (const char *)data, n, "fuzz", &e) < 0) {
        if (!e.text[0])
            abort();
        return 0;
    }
    for (int depth = THEME_MONO; depth <= THEME_256; depth++) {
        t.depth = (enum theme_depth)depth;
        for (int role = 0; role < THEME_ROLE_COUNT; role++) {
            struct style s = theme_style(&t, (enum theme_role)role);

            colour_check(s.fg);
            colour_check(s.bg);
        }
        for (int i = 0; i < THEME_RAMP; i++) {
            for (int r = 0; r < THEME_RAMPS; r++)
                colour_check(t.ramp[r][depth][i]);
        }
        for (int i = 0; i < THEME_FADE; i++)
            colour_check(t.fade[depth][i]);
    }
    return 0;
}
