/* Fuzz target: training data, any bytes as JSON Lines for the bundled model, which has a tokenizer
 * and a chat template. What is read is consistent (ids of the vocabulary, something to learn in
 * each line, none longer than the context) and gives the same when it is read again; what is not
 * says why in one line. Run from the root of the repository. */
#include "engine/train/data.h"
#include "tests/fuzz/input_file.h"

#include <string.h>

#define BASE "configs/models/tiny-storyteller-Q8_0.gguf"
#define CONTEXT 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const struct train_line *l, const struct model *m, int before)
{
    int learned = 0;

    must(l->n > 1 && l->n <= CONTEXT && l->number > before && !l->mask[0]);
    for (int i = 0; i < l->n; i++) {
        must(l->ids[i] >= 0 && l->ids[i] < m->hp.n_vocab);
        learned += l->mask[i] != 0;
    }
    must(learned == l->learned && learned > 0);
}

static void check_data(const struct train_data *d, const struct model *m)
{
    int longest = 0;

    must(d->n > 0);
    for (int i = 0; i < d->n; i++) {
        check_line(&d->lines[i], m, i ? d->lines[i - 1].number : 0);
        longest = d->lines[i].n > longest ? d->lines[i].n : longest;
    }
    must(longest == d->longest && train_data_most(d, 1) == longest);
    must(train_data_most(d, 3) >= longest && train_data_most(d, 3) <= 3 * longest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_options o = {.convert = -1, .width = 8, .n_threads = 1};
    static struct model *base;
    struct train_data d, again;
    struct error e = {0};

    if (!base)
        must(model_inspect(&base, BASE, &o, NULL, &e) == 0);
    input_write(data, size);
    if (train_data_read(&d, input_path, base, CONTEXT, NULL, &e) < 0) {
        must(e.code == ERR_INPUT && e.text[0] && !strpbrk(e.text, "\n\r\x1b"));
        train_data_release(&d);
        return 0;
    }
    check_data(&d, base);
    must(train_data_read(&again, input_path, base, CONTEXT, NULL, &e) == 0);
    must(again.hash == d.hash && again.n == d.n);
    train_data_release(&d);
    train_data_release(&again);
    return 0;
}
