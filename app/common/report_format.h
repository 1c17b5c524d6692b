/* How a report is written down, in the order of the words of --bench-format: llama-bench's. */
#ifndef APP_COMMON_REPORT_FORMAT_H
#define APP_COMMON_REPORT_FORMAT_H

enum report_format { REPORT_MD, REPORT_CSV, REPORT_JSON, REPORT_JSONL, REPORT_SQL };

#endif
