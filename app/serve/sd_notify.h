/* Notifies the service manager (sd_notify(3), whose protocol is a datagram and needs no library):
 * "READY=1", "STOPPING=1", "STATUS=…". Does nothing without a manager. Main thread. */
#ifndef APP_SERVE_SD_NOTIFY_H
#define APP_SERVE_SD_NOTIFY_H

/* One or more lines. Delivery failures are ignored. */
void sd_notify_tell(const char *state);

#endif
