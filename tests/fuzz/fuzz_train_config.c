/* Fuzz target: settings of a training run, any bytes as YAML or JSON. What is read is inside its
 * bounds, settles for any data or says why not, and has a learning rate for every step; what is not
 * says why in one line. */
#include "app/train/settings.h"
#include "tests/fuzz/input_file.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_complain(const struct error *e)
{
    must(e->code == ERR_USAGE && e->text[0] && !strpbrk(e->text, "\n\r\x1b"));
}

static void check(struct train_config *c)
{
    struct error e = {0};

    must(c->batch > 0 && c->accumulation > 0 && c->rank > 0);
    must(isfinite(c->lr) && isfinite(c->alpha) && isfinite(c->clip) && isfinite(c->weight_decay));
    must(c->beta1 >= 0 && c->beta1 < 1 && c->beta2 >= 0 && c->beta2 < 1);
    if (train_config_settle(c, 7, &e) < 0) {
        must_complain(&e);
        return;
    }
    must(c->steps > 0 && c->warmup_steps >= 0 && c->warmup_steps <= c->steps);
    for (int k = 0; k < c->steps; k += 1 + c->steps / 9) {
        double lr = train_config_lr(c, k);

        must(lr >= 0 && lr <= c->lr * (1 + 1e-9));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct train_config c;
    struct options o;
    struct error e = {0};
    char *was;

    must(options_init(&o, &e) == 0);
    input_write(data, size);
    was = o.train_config;
    o.train_config = input_path;
    if (train_settings(&c, &o, &e) < 0)
        must_complain(&e);
    else
        check(&c);
    o.train_config = was;
    options_release(&o);
    return 0;
}
