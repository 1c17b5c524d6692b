/* --list-devices: the compute devices, whether they pass the self-test, and their speed. Main
 * thread. */
#ifndef APP_HEADLESS_LIST_DEVICES_H
#define APP_HEADLESS_LIST_DEVICES_H

#include "app/options/options.h"

int list_devices_run(struct options *o, struct error *e);

#endif
