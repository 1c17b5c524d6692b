/* Fuzz target: one line of a batch. It is a turn that can be run, or an error with a code and one
 * safe line. */
#include "app/headless/batch_line.h"
#include "engine/base/utf8.h"
#include "engine/run/sampling/sampler.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct turn defaults = {.sampling = sampling_default(), .max_tokens = -1};
    struct batch_line line;
    struct error e = {0};

    if (batch_line_read(&line, (const char *)data, size, &defaults, false, "Be kind.", &e) == 0) {
        must(line.said.n_messages > 0 && line.turn.max_tokens >= -1 &&
             sampling_check(&line.turn.sampling, &e) == 0);
        must(!line.said.continue_last ||
             line.said.messages[line.said.n_messages - 1].role == ROLE_ASSISTANT);
        must(!line.said.raw || line.said.n_messages == 1);
        for (size_t i = 0; i < line.said.n_messages; i++)
            must(utf8_valid(line.said.messages[i].text, strlen(line.said.messages[i].text)));
        for (size_t i = 0; i < line.turn.n_stops; i++)
            must(line.turn.stops[i][0] != 0);
    } else
        must(e.code < 0 && e.text[0] && !strpbrk(e.text, "\n\r\x1b"));
    batch_line_release(&line);
    return 0;
}
