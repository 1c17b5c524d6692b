/* Fuzz target: what config.json says of layers. The input is a config.json without weights beside
 * it; whatever family it names describes its layers, which must make sense where it is not refused
 * in one line. */
#include "engine/device/state.h"
#include "engine/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char made[64], path[96];

static void remove_folder(void)
{
    unlink(path);
    rmdir(made);
}

static void must(int ok)
{
    if (!ok)
        abort();
}

static void write_config(const uint8_t *data, size_t size)
{
    FILE *f;

    if (!made[0]) {
        snprintf(made, sizeof made, "/tmp/moetop-fuzz-family-XXXXXX");
        must(mkdtemp(made) && !atexit(remove_folder));
        snprintf(path, sizeof path, "%s/config.json", made);
    }
    unlink(path); /* a new file: ext4 waits for the disk where one is cut and written again */
    f = fopen(path, "wb");
    must(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static void check_layer(const struct hparams *hp, int layer)
{
    const struct layer_shape *s = hparams_layer(hp, layer);

    must(s->ffn.experts >= 0 && s->ffn.experts <= 512 && s->ffn.used <= s->ffn.experts);
    must(s->mixer.kind == MIXER_NONE || (s->mixer.heads > 0 && s->mixer.value_dim > 0));
    must(shape_experts(s) <= hp->n_experts && shape_used(s) <= hp->n_experts_used);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error e = {0};
    struct model *m;
    int rc;

    if (size > 1 << 16)
        return 0;
    write_config(data, size);
    rc = model_describe(&m, made, NULL, &e);
    if (rc < 0) {
        must(!m && e.text[0] && !strchr(e.text, '\n'));
        return 0;
    }
    for (int l = 0; l < m->hp.n_layers; l++)
        check_layer(&m->hp, l);
    (void)model_computable(&m->hp, &e);
    model_free(m);
    return 0;
}
