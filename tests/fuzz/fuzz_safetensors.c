/* Fuzz target: safetensors files. The input is the JSON header and the data; the length in front is
 * put right unless the first byte asks for it raw, because a fuzzer would spend its life on those
 * eight bytes. */
#include "tests/fuzz/weights_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;
    size_t end = 0;

    if (size < 8 || data[0] == 0xff) {
        open_input(data, size);
        return 0;
    }
    copy = malloc(size + 8);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    /* the end of the object, strings not understood */
    for (size_t i = 8, depth = 0; i < size; i++) {
        depth += data[i] == '{';
        if (data[i] == '}' && depth && --depth == 0) {
            end = i + 1 - 8;
            break;
        }
    }
    if (end)
        memcpy(copy, &end, 8);
    open_input(copy, size);
    free(copy);
    return 0;
}
