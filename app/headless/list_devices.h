/* --list-devices: what could compute here, whether it may be trusted, and how fast it is. Main
 * thread. */
#ifndef APP_HEADLESS_LIST_DEVICES_H
#define APP_HEADLESS_LIST_DEVICES_H

#include "app/options/options.h"

int list_devices_run(struct options *o, struct error *e);

#endif
