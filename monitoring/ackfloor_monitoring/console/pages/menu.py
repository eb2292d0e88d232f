"""Menu: all pages, and those that each page leads to."""

from __future__ import annotations

from typing import Final

from ackfloor_monitoring.console.pages.actions_page import ACTIONS
from ackfloor_monitoring.console.pages.dead_letter_page import DEAD_LETTER
from ackfloor_monitoring.console.pages.dead_letters_page import DEAD_LETTERS
from ackfloor_monitoring.console.pages.handlers_page import HANDLERS
from ackfloor_monitoring.console.pages.in_flight_page import IN_FLIGHT
from ackfloor_monitoring.console.pages.jobs_page import JOBS
from ackfloor_monitoring.console.pages.lanes_page import LANES
from ackfloor_monitoring.console.pages.overview_page import OVERVIEW
from ackfloor_monitoring.console.pages.partitions.partition_page import PARTITION
from ackfloor_monitoring.console.pages.partitions.partitions_page import PARTITIONS
from ackfloor_monitoring.console.pages.records.record_page import RECORD
from ackfloor_monitoring.console.pages.records.waiting_record_page import WAITING_RECORD
from ackfloor_monitoring.console.pages.report_page import REPORT
from ackfloor_monitoring.console.pages.retry_page import RETRY
from ackfloor_monitoring.console.pages.settings_page import SETTINGS

PAGES: Final = (OVERVIEW, PARTITIONS, PARTITION, RECORD, IN_FLIGHT, LANES, HANDLERS, ACTIONS)
ASKED_PAGES: Final = (RETRY, WAITING_RECORD, DEAD_LETTERS, DEAD_LETTER, JOBS, SETTINGS, REPORT)
#: What each page leads to.
MENU: Final = (
    *(OVERVIEW, PARTITIONS, IN_FLIGHT, LANES, RETRY, DEAD_LETTERS, JOBS, HANDLERS, SETTINGS),
    *(ACTIONS, REPORT),
)
