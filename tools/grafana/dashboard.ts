// The type of a dashboard's JSON: that of @grafana/schema, with the options of each kind
// of panel, whose defaults Grafana fills in.
import type * as schema from "@grafana/schema";
import type * as barchart from "@grafana/schema/dist/esm/raw/composable/barchart/panelcfg/x/BarChartPanelCfg_types.gen.d.ts";
import type * as bargauge from "@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen.d.ts";
import type * as heatmap from "@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen.d.ts";
import type * as stat from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen.d.ts";
import type * as states from "@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen.d.ts";
import type * as table from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen.d.ts";
import type * as timeseries from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.d.ts";

// In JSON an enum of strings is its text.
type JSONOf<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: JSONOf<T[K]> } : T;

type Some<T> = T extends Array<infer E> ? Array<Some<E>> : T extends object ? { [K in keyof T]?: Some<T[K]> } : T;

// FieldConfig has an index signature for its custom part.
type Field<C> = Omit<schema.FieldConfig, "custom"> & { custom?: Some<C> };

// Each override sets a property by its name.
type Property<C> =
  | { [K in keyof Field<C>]-?: { id: K; value: Field<C>[K] } }[Exclude<keyof Field<C>, "custom">]
  | { [K in keyof C & string]-?: { id: `custom.${K}`; value: Some<C[K]> } }[keyof C & string];

// The query of the data source Prometheus; its types are in no small package.
interface Target extends schema.DataQuery {
  expr: string;
  legendFormat: string;
  format: "time_series" | "table" | "heatmap";
  instant: boolean;
  range: boolean;
}

type PanelOf<Type extends string, Options, Custom> = Omit<schema.Panel, "type" | "options" | "fieldConfig" | "targets" | "title" | "description"> & {
  type: Type;
  title: string;
  description: string;
  targets: Target[];
  options: Some<Options>;
  fieldConfig: { defaults: Field<Custom>; overrides: Array<{ matcher: schema.MatcherConfig; properties: Property<Custom>[] }> };
};

type Panel =
  | PanelOf<"barchart", barchart.Options, barchart.FieldConfig>
  | PanelOf<"bargauge", bargauge.Options, {}>
  | PanelOf<"heatmap", heatmap.Options, heatmap.FieldConfig>
  | PanelOf<"stat", stat.Options, {}>
  | PanelOf<"state-timeline", states.Options, states.FieldConfig>
  | PanelOf<"table", table.Options, table.FieldConfig>
  | PanelOf<"timeseries", timeseries.Options, timeseries.FieldConfig>
  | schema.RowPanel;

// Grafana shows the definition of a variable in its list of variables.
type Variable = schema.VariableModel & { definition?: string };

export type Dashboard = JSONOf<Omit<schema.Dashboard, "panels" | "templating"> & { panels: Panel[]; templating: { list: Variable[] } }>;
