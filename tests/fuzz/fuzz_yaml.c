/* Any bytes as a configuration file: an error line or settings, never a crash, a leak or a hang. */
#include "app/options/config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct options o;
    struct error e;

    if (options_init(&o, &e) < 0)
        return 0;
    if (config_parse(&o, (const char *)data, n, "fuzz", ORIGIN_CONFIG, OPTION_FILE, &e) < 0 &&
        !e.text[0])
        abort();
    options_release(&o);
    return 0;
}
