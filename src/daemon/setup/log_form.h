/* log_form.h: the lines of the daemon's log. */
#pragma once

/* Opens the log on stderr (base/log.h). If stderr is the journal, each line begins with its
 * priority, and the journal adds time and pid. Otherwise each line has its time and its level. Call
 * it again when stderr has changed. */
void log_form_open(void);
