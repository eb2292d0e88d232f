"""SettingsFile: notices that the settings file has changed, by its stat, twice a second."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ackfloor.errors import ConfigError
from ackfloor.settings import Settings
from ackfloor.settings.app_sections import GROUP, NOWHERE, file_place, group_of
from ackfloor.settings.layers import Assigned, Layer, find_file
from ackfloor.settings.variables import environment_place

#: Seconds between two checks.
LOOK_S = 0.5

#: Device, inode, time of change and size; None where there is no file.
_Looks = tuple[int, int, int, int] | None


class SettingsFile:
    """The settings file of a run.

    A change is reported once two checks agree, so that a file that is still being written is not
    read. (An empty file is legal, and so may half a file be.)

    Args:
        given: the file named on the command line.
        environment: variables, one of which may name the file.
        group: the app's group as its code names it.

    Attributes:
        remark: what the first reading found for whoever may have misspelt the group, or "".
    """

    def __init__(
        self, given: Path | None, environment: Mapping[str, str] = os.environ, group: str = ""
    ) -> None:
        self._given = given
        self._environment = environment
        self._in_code = group
        #: Of the app whose section counts; a run keeps it, for a new group needs a restart.
        self._group: str | None = None
        self.remark = ""
        self._read_as: _Looks = None
        self._seen_as: _Looks = None
        self._name: Path | None = None
        self._look_at_s = 0.0

    def read(self) -> Layer:
        """The file's settings for the app now; nothing if there is no file.

        Raises:
            ConfigError: the file can't be read, or has been removed; a setting in it is unknown.
        """
        self._read_as = self._seen_as = self._looks()
        found = find_file(self._given, self._environment)
        if found is None and self._name is not None:
            fix = "put it back; until then the settings stay as they are"
            raise ConfigError("config", str(self._name), "the settings file is gone", fix)
        place = file_place(found) if found else NOWHERE
        if self._group is None:
            code, variables = {GROUP: Assigned(self._in_code, "code")}, self._variables()
            self._group = group_of(code, place.top, variables)
            self.remark = place.remark(self._group)
        layer, hidden = place.of(self._group)
        Settings.check_hidden(hidden)
        self._name = found
        return layer

    def _variables(self) -> Layer:
        return environment_place(self._environment).top

    def changed(self, now_s: float) -> bool:
        """Whether the file differs from when it was read last, and has stopped changing.

        Args:
            now_s: monotonic seconds.
        """
        if now_s < self._look_at_s:
            return False
        self._look_at_s = now_s + LOOK_S
        looks, before = self._looks(), self._seen_as
        self._seen_as = looks
        return looks == before and looks != self._read_as

    def _looks(self) -> _Looks:
        found = find_file(self._given, self._environment) or self._name
        if found is None:
            return None
        try:
            status = found.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
