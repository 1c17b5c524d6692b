/* Fuzz target: GGUF files, from the first byte to a loaded model. */
#include "tests/fuzz/weights_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    open_input(data, size);
    return 0;
}
