/* The settings of a training run: a file (--train-config, YAML or JSON), then the flags of the same
 * names. Main thread. */
#ifndef APP_TRAIN_SETTINGS_H
#define APP_TRAIN_SETTINGS_H

#include "app/options/options.h"
#include "engine/train/config.h"

/* Defaults, file, flags. ERR_USAGE names the file and the line, or the flag. */
int train_settings(struct train_config *c, const struct options *o, struct error *e);

#endif
