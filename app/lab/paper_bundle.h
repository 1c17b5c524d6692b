/* The mode --paper-bundle: an answer with everything that a paper says of it, in one folder, and
 * the script that derives it all again (moetop-lab(7)). The script is also what makes the folder:
 * there is one list of steps. Main thread; loads nothing itself. */
#ifndef APP_LAB_PAPER_BUNDLE_H
#define APP_LAB_PAPER_BUNDLE_H

#include "app/options/options.h"

bool paper_bundle_wanted(const struct options *o);
/* ERR_USAGE: no prompt, no seed, a flag that the bundle sets itself, a folder that has files;
 * ERR_IO: also if a step failed, which said why. */
int paper_bundle_run(struct options *o, struct error *e);

#endif
