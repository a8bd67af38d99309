"""A second import name of the package: `pipeline.api.embed` is the module object `lle.api.embed`, not a copy."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import CodeType, ModuleType
from typing import Any


class Alias(MetaPathFinder, Loader):
    """Finds the submodules of `alias` in the package `name`. Other imports are not affected."""

    def __init__(self, alias: str, name: str) -> None:
        self.alias, self.name = alias, name

    def install(self) -> None:
        """Make the package `name` known as `alias` too."""
        sys.modules[self.alias] = sys.modules[self.name]
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{self.alias}.") or sys.modules.get(self.alias) is not sys.modules[self.name]:
            return None
        if (spec := find_spec(self._named(fullname))) is None:
            return None
        return spec_from_loader(
            fullname, self, origin=spec.origin, is_package=spec.submodule_search_locations is not None
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._named(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's spec, which the import system has replaced. The module itself was executed before."""
        alias_spec: Any = module.__spec__
        module.__spec__ = alias_spec.loader_state

    def get_code(self, fullname: str) -> CodeType | None:
        """The code of a module, for `python -m`."""
        spec = find_spec(self._named(fullname))
        return spec.loader.get_code(spec.name) if spec and isinstance(spec.loader, InspectLoader) else None

    def _named(self, fullname: str) -> str:
        return self.name + fullname.removeprefix(self.alias)
